package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
)

// A ConflictingWriter is another program that repeatedly writes or removes a file after the agent
// has written it.
type ConflictingWriter struct {
	// File is the name of a configuration, or the path of an executable.
	File string
	// Plugin is the plugin that identifies the program that wrote last; empty for an executable.
	Plugin string
	// Writer is the name of the program that wrote last, as far as the plugin identifies it.
	Writer string
	// Advice is the remedy.
	Advice string
	// Rewrites is the number of writes by other programs to the file, from Since to Last.
	Rewrites    int
	Since, Last time.Time

	recent [minRewrites]time.Time // ring buffer of the times of the last rewrites
}

// period returns the average time between the last rewrites, and 0 after a single one.
func (c ConflictingWriter) period() time.Duration {
	n := min(c.Rewrites, minRewrites)
	if n < 2 {
		return 0
	}
	return c.Last.Sub(c.recent[(c.Rewrites-n)%minRewrites]) / time.Duration(n-1)
}

// isFast reports whether the rewrites are so frequent that pods probably start without Sluice's
// plugin.
func (c ConflictingWriter) isFast() bool { return c.period() <= maxFastPeriod }

// isAgent reports whether the writer is another node agent of Sluice.
func (c ConflictingWriter) isAgent() bool { return c.Writer == anotherAgent.name }

// String returns a description without the number of rewrites, so that it does not change with each
// rewrite.
func (c ConflictingWriter) String() string {
	since := c.Since.UTC().Format(time.RFC3339)
	if c.Plugin == "" {
		return fmt.Sprintf("%s has repeatedly removed or replaced %s since %s; "+
			"pods that start before the agent restores the file fail: %s",
			c.Writer, c.File, since, c.Advice)
	}
	if c.isAgent() {
		return fmt.Sprintf("%s has repeatedly rewritten %s since %s; "+
			"pods start with the settings of the agent that wrote last: %s",
			c.Writer, c.File, since, c.Advice)
	}
	return fmt.Sprintf("%s (plugin %s) has repeatedly rewritten %s since %s; "+
		"pods that start before the agent restores the file have no redirection: %s",
		c.Writer, c.Plugin, c.File, since, c.Advice)
}

const (
	// A program is a conflicting writer after minRewrites rewrites that are at most conflictTTL
	// apart. Fewer rewrites are typical of an upgrade.
	minRewrites = 3
	conflictTTL = 10 * time.Minute
	// If rewrites are at most maxFastPeriod apart on average, Sluice's plugin is missing for so
	// much of the time that the node is not ready. With another agent as the writer, the node is
	// not ready because pods start with the parameters of either agent.
	maxFastPeriod = 10 * time.Second
	// relaxDuration is the time for which a constraint that a conflicting writer violates remains
	// relaxed.
	relaxDuration = 5 * time.Minute
)

// conflicts counts the writes by other programs to files of the agent. It is not safe for
// concurrent use.
type conflicts struct {
	// written contains the files whose last known write is the agent's, with the checksum of the
	// content. The checksum is empty if an earlier process wrote the file.
	written      map[string]string
	writers      map[string]*ConflictingWriter // by file
	relaxed      Relaxed
	relaxedUntil time.Time
	total        map[string]uint64 // number of rewrites by writer
}

func newConflicts() *conflicts {
	return &conflicts{
		written: map[string]string{}, writers: map[string]*ConflictingWriter{},
		total: map[string]uint64{},
	}
}

// noteWritten records that a file has the desired content, with its checksum. The checksum is empty
// if an earlier process of the agent wrote the file.
func (cs *conflicts) noteWritten(name, sum string) { cs.written[name] = sum }

// noteUnchanged is like noteWritten, for a file that has the desired content already. If it is not
// known that the agent wrote the file, noteUnchanged does nothing.
func (cs *conflicts) noteUnchanged(name, sum string) {
	if _, ok := cs.written[name]; ok {
		cs.written[name] = sum
	}
}

// isWritten reports whether this process may have written the current content of a file, according
// to the file's journal entry and to the content that this process wrote last.
func (cs *conflicts) isWritten(name string, current []byte, e journal.Entry) bool {
	last := cs.written[name]
	return e.WrittenByAgent(current) && (last == "" || last == journal.Sum(current))
}

// noteReleased records that the agent no longer manages a file.
func (cs *conflicts) noteReleased(name string) { delete(cs.written, name) }

// noteRewrite records that a program, identified by its plugin, has changed a file that had the
// desired content. It counts at most one rewrite per write of the agent.
func (cs *conflicts) noteRewrite(now time.Time, name, plugin string, w writer) {
	if _, ok := cs.written[name]; !ok {
		return
	}
	delete(cs.written, name)
	cs.count(now, name, plugin, w)
}

// count counts a write by another program to a file.
func (cs *conflicts) count(now time.Time, name, plugin string, w writer) {
	cs.total[w.name]++
	c := cs.writers[name]
	if c == nil || now.Sub(c.Last) > conflictTTL {
		c = &ConflictingWriter{File: name, Since: now}
		cs.writers[name] = c
	}
	c.Plugin, c.Writer, c.Advice, c.Last = plugin, w.name, w.advice, now
	c.recent[c.Rewrites%minRewrites] = now
	c.Rewrites++
}

// active returns the current conflicting writers, sorted by file. It forgets writers that have not
// written for conflictTTL.
func (cs *conflicts) active(now time.Time) []ConflictingWriter {
	var active []ConflictingWriter
	for _, name := range slices.Sorted(maps.Keys(cs.writers)) {
		c := cs.writers[name]
		if now.Sub(c.Last) > conflictTTL {
			delete(cs.writers, name)
			continue
		}
		// A program has stopped if its last write is older than both two periods and maxFastPeriod.
		if c.Rewrites >= minRewrites && now.Sub(c.Last) <= max(maxFastPeriod, 2*c.period()) {
			active = append(active, *c)
		}
	}
	return active
}

// relax relaxes constraints for relaxDuration.
func (cs *conflicts) relax(now time.Time, c Relaxed) {
	cs.relaxed.Position = cs.relaxed.Position || c.Position
	cs.relaxed.KeepReplaced = cs.relaxed.KeepReplaced || c.KeepReplaced
	cs.relaxedUntil = now.Add(relaxDuration)
}

// relaxedAt returns the currently relaxed constraints.
func (cs *conflicts) relaxedAt(now time.Time) Relaxed {
	if !now.Before(cs.relaxedUntil) {
		cs.relaxed = Relaxed{}
	}
	return cs.relaxed
}
