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

// reloadTime is the time after a change of the chain in which a runtime may still use the previous
// chain: containerd reads the new one after some tenths of a second, and creating a sandbox takes
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
	// Check checks the chain now, and reports the result with [Detector.NoteChain]. If it is not
	// nil, [Detector.Explain] calls it for a sandbox that was created after the last check, if that
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
	// lastAdd is the last argument of NoteAdd, and correctedAdd is the same time by the present
	// clock.
	lastAdd, correctedAdd time.Time
}

// A Bypass describes pods that started without the plugin while the chain was complete.
type Bypass struct {
	// Pod is the last such pod, as namespace/name.
	Pod string `json:"pod"`
	// UID is the UID of the pod.
	UID string `json:"uid"`
	// Created is the creation time of the pod's sandbox.
	Created time.Time `json:"created"`
	// Since is the beginning of the period in which the chain was complete.
	Since time.Time `json:"since"`
	// Pods is the number of such pods since the plugin was last called for a pod.
	Pods int `json:"pods"`
}

// String describes the bypass and the remedy.
func (b Bypass) String() string {
	return fmt.Sprintf("the runtime bypasses the plugin: it created the sandbox of pod %s at %s "+
		"without calling the plugin, although the node's CNI chain had been complete since %s "+
		"(number of such pods: %d); the runtime reads another directory, or has not reloaded the "+
		"configuration: restart the container runtime, and check its cni conf_dir; "+
		"the problem is solved once the plugin is called for a pod",
		b.Pod, stamp(b.Created), stamp(b.Since), b.Pods)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// New returns a detector. If the state of an earlier agent cannot be read, it returns an error and
// a detector without that state.
func New(o Options) (*Detector, error) {
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
	d.current = &stored
	return d, nil
}

// NoteChain records whether the chain was complete at a time. If repaired is set, the chain was
// incomplete until a repair at this time. reason is the problem of an incomplete chain.
//
// If the node's clock was set since the last call, earlier times are not compared with later ones:
// a new period begins. If the clock was set back, the times of a current bypass and of the last ADD
// are corrected, so that a later ADD ends the bypass, and an earlier one does not.
func (d *Detector) NoteChain(at time.Time, complete, repaired bool, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.at.IsZero() && d.current != nil && d.current.Created.After(at) {
		// The clock was set back since an earlier agent detected the bypass.
		d.current.Created = at.Round(0)
	}
	if step := d.clock.note(at, d.options.Elapsed); step != 0 {
		d.history.open = false
		if step < 0 && d.current != nil {
			d.current.Created = d.current.Created.Add(step)
		}
		if step < 0 && d.correctedAdd.After(at) {
			d.correctedAdd = d.correctedAdd.Add(step)
		}
	}
	d.history.note(at, complete, repaired, reason)
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

// NoteBypass records a pod that [Detector.Explain] classifies as a bypass, and reports whether the
// pod is a new one. It ignores the pod that was recorded last, and pods whose sandbox was created
// before that pod's. If the bypass cannot be stored for the next agent, it returns an error.
func (d *Detector) NoteBypass(pod, uid string, created time.Time) (isNew bool, err error) {
	d.mu.Lock()
	last, _ := d.history.spanAt(created)
	next := Bypass{Pod: pod, UID: uid, Created: created, Since: last.from, Pods: 1}
	if d.current != nil {
		if d.current.UID == uid || created.Before(d.current.Created) {
			d.mu.Unlock()
			return false, nil
		}
		next.Pods = d.current.Pods + 1
	}
	d.current = &next
	err = d.save()
	d.mu.Unlock()
	d.notifyChanged()
	return true, err
}

// NoteAdd records that the plugin completed its latest ADD at a time. If this time is at least
// reloadTime after the last bypass, the runtime uses the chain again, and the bypass ends. If the
// end cannot be stored for the next agent, NoteAdd returns an error.
func (d *Detector) NoteAdd(at time.Time) error {
	d.mu.Lock()
	if !at.Equal(d.lastAdd) {
		d.lastAdd, d.correctedAdd = at, at
	}
	if d.current == nil || d.correctedAdd.Before(d.current.Created.Add(reloadTime)) {
		d.mu.Unlock()
		return nil
	}
	d.current = nil
	err := d.save()
	d.mu.Unlock()
	d.notifyChanged()
	return err
}

func (d *Detector) notifyChanged() {
	if d.options.Changed != nil {
		d.options.Changed()
	}
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
