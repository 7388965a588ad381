package node

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Rival is somebody who writes or removes a file again and again after we have written it.
type Rival struct {
	// File is a configuration, without its directory, or the path of an executable. Plugin is the plugin by which they are known; it is
	// empty for an executable.
	File, Plugin string
	// Writer is the program, as far as it can be told from the plugin; Advice what to do about it.
	Writer, Advice string
	// Rewrites counts what they wrote in a row, from Since to Last.
	Rewrites    int
	Since, Last time.Time

	recent [contestedAfter]time.Time // the last rewrites, in a ring
}

// period is the average time between the last rewrites; 0 for a single one.
func (r Rival) period() time.Duration {
	n := min(r.Rewrites, contestedAfter)
	if n < 2 {
		return 0
	}
	return r.Last.Sub(r.recent[(r.Rewrites-n)%contestedAfter]) / time.Duration(n-1)
}

// fast reports whether pods are likely to start between a rewrite and its repair.
func (r Rival) fast() bool { return r.period() <= quiet }

// String says it without how often, which is other words each time: Rewrites counts.
func (r Rival) String() string {
	since := r.Since.UTC().Format(time.RFC3339)
	if r.Plugin == "" {
		return fmt.Sprintf("%s has removed or replaced %s again and again since %s; pods that start in between fail: %s",
			r.Writer, r.File, since, r.Advice)
	}
	return fmt.Sprintf("%s (plugin %s) has rewritten %s again and again since %s; pods that start in between have no redirection: %s",
		r.Writer, r.Plugin, r.File, since, r.Advice)
}

const (
	// A rival is who rewrites this often with less than memory in between. Once or twice is an upgrade.
	contestedAfter = 3
	memory         = 10 * time.Minute
	// One who on average rewrites with less than quiet in between leaves pods so much time without the plugin that the node is not ready.
	quiet = 10 * time.Second
	// conceded is how long a wish is given up that a rival does not grant.
	conceded = 5 * time.Minute
)

// rivals follows who writes over what we wrote. Not safe for concurrent use.
type rivals struct {
	armed    map[string]bool // files that hold what we wrote, as far as we know
	contests map[string]*Rival
	conceded Concessions
	until    time.Time
	total    map[string]uint64 // rewrites by writer
}

func newRivals() *rivals {
	return &rivals{armed: map[string]bool{}, contests: map[string]*Rival{}, total: map[string]uint64{}}
}

// wrote notes that a file holds what we want.
func (r *rivals) wrote(name string) { r.armed[name] = true }

// released notes that a file is no business of ours any more.
func (r *rivals) released(name string) { delete(r.armed, name) }

// rewritten notes that a file does not hold what we want, and who did that. It counts once for each time that we put it right.
func (r *rivals) rewritten(now time.Time, name, plugin string) {
	if !r.armed[name] {
		return
	}
	r.armed[name] = false
	r.count(now, name, plugin, writerOf(plugin))
}

// count counts what somebody has done to a file.
func (r *rivals) count(now time.Time, name, plugin string, w writer) {
	r.total[w.name]++
	c := r.contests[name]
	if c == nil || now.Sub(c.Last) > memory {
		c = &Rival{File: name, Since: now}
		r.contests[name] = c
	}
	c.Plugin, c.Writer, c.Advice, c.Last = plugin, w.name, w.advice, now
	c.recent[c.Rewrites%contestedAfter] = now
	c.Rewrites++
}

// active returns those who are at it now, by file.
func (r *rivals) active(now time.Time) []Rival {
	var active []Rival
	for _, name := range slices.Sorted(maps.Keys(r.contests)) {
		c := r.contests[name]
		if now.Sub(c.Last) > memory {
			delete(r.contests, name)
			continue
		}
		// Whoever has missed two of its turns has stopped, for now.
		if c.Rewrites >= contestedAfter && now.Sub(c.Last) <= max(quiet, 2*c.period()) {
			active = append(active, *c)
		}
	}
	return active
}

// concede gives up a wish for a time.
func (r *rivals) concede(now time.Time, c Concessions) {
	r.conceded.Position = r.conceded.Position || c.Position
	r.conceded.Together = r.conceded.Together || c.Together
	r.until = now.Add(conceded)
}

// concessions are what is given up now.
func (r *rivals) concessions(now time.Time) Concessions {
	if !now.Before(r.until) {
		r.conceded = Concessions{}
	}
	return r.conceded
}
