package bypass

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// reloadTime is the time for which a runtime may still use the previous chain after a change.
// containerd reads the new chain after some tenths of a second, and creating a sandbox takes
// seconds.
const reloadTime = 5 * time.Second

// Options are the options of a [Detector]. With the zero value the plugin is expected in the
// chain, and bypasses are not stored.
type Options struct {
	// Optional is set if the plugin is not inserted into the chain, and pods must request the
	// plugin's network. Then a start without the plugin is not a bypass.
	Optional bool
	// File is the path of the file that stores a current bypass for the next agent. It should not
	// persist across a reboot.
	File string
	// Check, unless nil, checks the chain now, and reports the result with [Detector.NoteChain].
	// [Detector.Explain] calls it for a sandbox that was created after the last check, if that
	// check found the chain complete.
	Check func()
	// Changed is called, without a lock held, when a bypass begins, is repeated or ends.
	Changed func()
	// Elapsed returns the time since a fixed moment, by a clock that is never set. If it is nil,
	// the monotonic readings of the times that are passed to [Detector.NoteChain] are used.
	Elapsed func() time.Duration
}

// A Detector records when the chain is complete, that is, contains the plugin, and detects a
// runtime that does not use the chain. Use [New]. Its methods are safe for concurrent use.
type Detector struct {
	options Options

	mu      sync.Mutex
	clock   clock
	history chainHistory
	current *Bypass // nil if there is none
	// bypassedAt is current.Created, corrected if the clock was set back since; valid if current is
	// not nil.
	bypassedAt time.Time
	counted    knownSandboxes // sandboxes that NoteBypass has counted
	added      knownSandboxes // sandboxes that NoteSandboxAdd has recorded
	// lastAdd is the last argument of NoteAdd, and correctedAdd is the same time by the present
	// clock, or zero if this is unknown.
	lastAdd, correctedAdd time.Time
}

// A Bypass describes pods that started without the plugin while the chain was complete.
type Bypass struct {
	// Pod is the pod of the latest sandbox that was created without the plugin, as namespace/name.
	Pod string `json:"pod"`
	// UID is the UID of Pod.
	UID string `json:"uid"`
	// Created is the creation time of this sandbox.
	Created time.Time `json:"created"`
	// Since is the beginning of the period in which the chain was complete.
	Since time.Time `json:"since"`
	// Pods is the number of pods that started without the plugin since its last ADD. A pod counts
	// again for another sandbox.
	Pods int `json:"pods"`
}

// String describes the bypass and the remedy.
func (b Bypass) String() string {
	return fmt.Sprintf("the runtime bypasses the plugin: it created the sandbox of pod %s at %s "+
		"without calling the plugin, although the node's CNI chain had been complete since %s "+
		"(number of such pods: %d); the runtime reads another directory, or has not reloaded the "+
		"configuration: restart the container runtime, and check its cni conf_dir; "+
		"the problem is solved once the plugin is called for a pod",
		b.Pod, formatTime(b.Created), formatTime(b.Since), b.Pods)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// New returns a detector. If the state of an earlier agent cannot be read, it returns an error and
// a detector without that state.
func New(o Options) (*Detector, error) {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	d := &Detector{options: o}
	if o.File == "" {
		return d, nil
	}
	data, err := file.ReadRegular(o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	var stored Bypass
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	if err == nil && (stored.Pod == "" || stored.Pods < 1) {
		err = fmt.Errorf("%s contains no pod", o.File)
	}
	if err != nil {
		return d, fmt.Errorf("read the bypass that an earlier agent stored: %w", err)
	}
	d.current, d.bypassedAt = &stored, stored.Created
	d.counted.add(stored.UID, stored.Created)
	return d, nil
}

// A ChainCheck is the result of a check of the node's CNI chain, and of its repair.
type ChainCheck struct {
	// At is the time when the check began.
	At time.Time
	// Done is the time when the check and the repair ended; the zero time means At. A period in
	// which the chain is complete begins at this time.
	Done time.Time
	// Complete is set if the chain was complete, or is complete after the repair.
	Complete bool
	// Repaired is set if the chain was incomplete until a repair by this check.
	Repaired bool
	// Unread is set if the chain could not be read, so that it is unknown whether it was complete.
	// Complete is then false.
	Unread bool
	// Reason is the problem if Complete is not set.
	Reason string
}

// NoteChain records the result of a check.
//
// If the node's clock was set since the last call, a new period begins, because earlier times
// cannot be compared with later ones. If the clock was set back, NoteChain corrects the times that
// NoteAdd compares, so that a later ADD ends the bypass, and an earlier one does not.
func (d *Detector) NoteChain(c ChainCheck) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.at.IsZero() {
		if d.current != nil && d.current.Created.After(c.At) {
			// The clock was set back since an earlier agent detected the bypass.
			d.current.Created = c.At.Round(0)
			d.bypassedAt = d.current.Created
		}
		d.discardFutureAdd(c.At)
	}
	if step := d.clock.note(c.At, d.options.Elapsed); step != 0 {
		if d.history.isOpen() {
			d.history.end(clockSet, "")
		}
		if step > 0 {
			d.counted.shift(step)
			d.added.shift(step)
		} else {
			d.bypassedAt = d.bypassedAt.Add(step)
			if d.correctedAdd.After(c.At) {
				d.correctedAdd = d.correctedAdd.Add(step)
			}
		}
	}
	d.history.note(c)
}

// discardFutureAdd discards the time of the last ADD if it is later than now: an earlier agent ran
// during the ADD, and the clock was set back since. The caller holds d.mu.
func (d *Detector) discardFutureAdd(now time.Time) {
	if d.correctedAdd.After(now.Add(reloadTime)) {
		d.correctedAdd = time.Time{}
	}
}

// Current returns the current bypass, and whether there is one.
func (d *Detector) Current() (Bypass, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return Bypass{}, false
	}
	return *d.current, true
}

// NoteBypass records a pod that [Detector.Explain] classifies as a bypass, and reports whether it
// is a new one: a sandbox is recorded only once, even if the bypass has ended since. Pods may be
// recorded in any order. If the bypass cannot be stored for the next agent, NoteBypass returns an
// error.
func (d *Detector) NoteBypass(pod, uid string, created time.Time) (isNew bool, err error) {
	d.mu.Lock()
	if d.counted.contains(uid, created) {
		d.mu.Unlock()
		return false, nil
	}
	d.counted.add(uid, created)
	pods := 1
	if d.current != nil {
		pods = d.current.Pods + 1
	}
	if d.current == nil || !created.Before(d.bypassedAt) {
		period, _ := d.history.periodAt(created)
		d.current = &Bypass{Pod: pod, UID: uid, Created: created, Since: period.from}
		d.bypassedAt = created
	}
	d.current.Pods = pods
	err = d.save()
	d.mu.Unlock()
	d.options.Changed()
	return true, err
}

// NoteAdd records the time of the plugin's latest ADD. If it is at least reloadTime after the last
// bypass, the runtime uses the chain again, and the bypass ends. If the first call passes a time in
// the future, the clock was set back after this ADD, and the time proves nothing. If the end of the
// bypass cannot be stored for the next agent, NoteAdd returns an error.
func (d *Detector) NoteAdd(at time.Time) error {
	d.mu.Lock()
	if !at.Equal(d.lastAdd) {
		isFirst := d.lastAdd.IsZero()
		d.lastAdd, d.correctedAdd = at, at
		if isFirst && !d.clock.at.IsZero() {
			d.discardFutureAdd(d.clock.now(d.options.Elapsed))
		}
	}
	if d.current == nil || d.correctedAdd.Before(d.bypassedAt.Add(reloadTime)) {
		d.mu.Unlock()
		return nil
	}
	d.current = nil
	err := d.save()
	d.mu.Unlock()
	d.options.Changed()
	return err
}

// NoteSandboxAdd records that the plugin has completed an ADD for a pod, at the present time by the
// node's clock. [Detector.Explain] then needs no record of this ADD.
func (d *Detector) NoteSandboxAdd(uid string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.added.add(uid, now.Round(0))
}

// save stores the current bypass, or removes the file if there is none. The caller holds d.mu.
func (d *Detector) save() error {
	if d.options.File == "" {
		return nil
	}
	if d.current == nil {
		_, err := file.Remove(d.options.File)
		return err
	}
	data, err := json.Marshal(d.current)
	if err != nil {
		return err
	}
	_, err = file.Write(d.options.File, append(data, '\n'), 0o600)
	return err
}
