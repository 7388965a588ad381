package node

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A ConflictingWriter is another program that repeatedly writes or removes a file after the agent
// has written it.
type ConflictingWriter struct {
	// File is a configuration without its directory, or the path of an executable. Plugin is the
	// plugin that identifies the program; it is empty for an executable.
	File, Plugin string
	// Writer is the program, if the plugin identifies it; Advice is the remedy.
	Writer, Advice string
	// Rewrites is the number of its consecutive writes, from Since to Last.
	Rewrites    int
	Since, Last time.Time

	recent [contestedAfter]time.Time // the last rewrites, in a ring
}

// period returns the average time between the last rewrites; 0 for a single one.
func (r ConflictingWriter) period() time.Duration {
	n := min(r.Rewrites, contestedAfter)
	if n < 2 {
		return 0
	}
	return r.Last.Sub(r.recent[(r.Rewrites-n)%contestedAfter]) / time.Duration(n-1)
}

// fast reports whether pods probably start between a rewrite and its repair.
func (r ConflictingWriter) fast() bool { return r.period() <= quiet }

// String returns a description without the number, which Rewrites contains.
func (r ConflictingWriter) String() string {
	since := r.Since.UTC().Format(time.RFC3339)
	if r.Plugin == "" {
		return fmt.Sprintf("%s has repeatedly removed or replaced %s since %s; pods that start in between fail: %s",
			r.Writer, r.File, since, r.Advice)
	}
	return fmt.Sprintf("%s (plugin %s) has repeatedly rewritten %s since %s; pods that start in between have no redirection: %s",
		r.Writer, r.Plugin, r.File, since, r.Advice)
}

const (
	// A conflicting writer rewrites at least so many times with less than conflictTTL in between.
	// Once or twice is an upgrade.
	contestedAfter = 3
	conflictTTL    = 10 * time.Minute
	// If rewrites are on average less than quiet apart, pods start without the plugin for so much
	// of the time that the node is not ready.
	quiet = 10 * time.Second
	// relaxed is the time for which a constraint that a conflicting writer violates remains
	// relaxed.
	relaxed = 5 * time.Minute
)

// conflicts counts the writes of other programs to files of the agent. It is not safe for
// concurrent use.
type conflicts struct {
	armed    map[string]bool // files that hold what we wrote, as far as we know
	contests map[string]*ConflictingWriter
	relaxed  Relaxed
	until    time.Time
	total    map[string]uint64 // rewrites by writer
}

func newConflicts() *conflicts {
	return &conflicts{
		armed: map[string]bool{}, contests: map[string]*ConflictingWriter{},
		total: map[string]uint64{},
	}
}

// wrote records that a file has the desired content.
func (r *conflicts) wrote(name string) { r.armed[name] = true }

// released records that the agent no longer manages a file.
func (r *conflicts) released(name string) { delete(r.armed, name) }

// rewritten records that a file does not have the desired content, and the program that wrote it.
// It counts once per repair.
func (r *conflicts) rewritten(now time.Time, name, plugin string) {
	if !r.armed[name] {
		return
	}
	r.armed[name] = false
	r.count(now, name, plugin, writerOf(plugin))
}

// count counts a write to a file.
func (r *conflicts) count(now time.Time, name, plugin string, w writer) {
	r.total[w.name]++
	c := r.contests[name]
	if c == nil || now.Sub(c.Last) > conflictTTL {
		c = &ConflictingWriter{File: name, Since: now}
		r.contests[name] = c
	}
	c.Plugin, c.Writer, c.Advice, c.Last = plugin, w.name, w.advice, now
	c.recent[c.Rewrites%contestedAfter] = now
	c.Rewrites++
}

// active returns the current conflicting writers by file.
func (r *conflicts) active(now time.Time) []ConflictingWriter {
	var active []ConflictingWriter
	for _, name := range slices.Sorted(maps.Keys(r.contests)) {
		c := r.contests[name]
		if now.Sub(c.Last) > conflictTTL {
			delete(r.contests, name)
			continue
		}
		// A program that did not write at two expected times has stopped.
		if c.Rewrites >= contestedAfter && now.Sub(c.Last) <= max(quiet, 2*c.period()) {
			active = append(active, *c)
		}
	}
	return active
}

// relax relaxes constraints for a time.
func (r *conflicts) relax(now time.Time, c Relaxed) {
	r.relaxed.Position = r.relaxed.Position || c.Position
	r.relaxed.Together = r.relaxed.Together || c.Together
	r.until = now.Add(relaxed)
}

// relaxedAt returns the currently relaxed constraints.
func (r *conflicts) relaxedAt(now time.Time) Relaxed {
	if !now.Before(r.until) {
		r.relaxed = Relaxed{}
	}
	return r.relaxed
}
