package bypass

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// reloadTime is the time after a change of the chain during which a runtime may use the previous
// one: some tenths of a second until it reads the new one (containerd), and the time to create a
// sandbox.
const reloadTime = 5 * time.Second

// Options of a detector. With the zero value the plugin is in the chain, and bypasses are not
// stored.
type Options struct {
	// Optional reports that pods may start without the plugin, because it is not in the chain and
	// pods must request its network. Then nothing is a bypass.
	Optional bool
	// File stores a current bypass for the next agent. It should not persist across a reboot.
	File string
	// Check checks the chain now, and reports the result with [Detector.Note]. It is called before
	// a bypass is reported.
	Check func()
	// Changed is called, without a lock held, when a bypass begins, is repeated or ends.
	Changed func()
	// Elapsed returns the time since a fixed moment, by a clock that is never set. If it is nil,
	// the monotonic readings of the times that Note is given are used.
	Elapsed func() time.Duration
}

// A Detector records since when the chain is complete, and detects a runtime that does not use it.
// Use [New]. Its methods are safe for concurrent use.
type Detector struct {
	options Options

	mu      sync.Mutex
	clock   clock
	history chainHistory
	stands  *Bypass
}

// A Bypass is a pod that started without the plugin while the chain was complete.
type Bypass struct {
	// Pod is the last such pod, as namespace/name, and UID its UID.
	Pod string `json:"pod"`
	UID string `json:"uid"`
	// Created is the creation time of its sandbox, Since the time since when the chain had been
	// complete.
	Created time.Time `json:"created"`
	Since   time.Time `json:"since"`
	// Pods is the number of pods without an ADD since the last pod with one.
	Pods int `json:"pods"`
}

// String describes the bypass and the remedy.
func (b Bypass) String() string {
	return fmt.Sprintf("the runtime bypasses the plugin: it created the sandbox of pod %s at %s "+
		"without calling it, although the node's CNI chain has been complete since %s (%d such pods); "+
		"it reads another directory, or has not reloaded the configuration: "+
		"restart the container runtime, and check its cni conf_dir; "+
		"the problem is solved once the plugin is called for a pod",
		b.Pod, stamp(b.Created), stamp(b.Since), b.Pods)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// New returns a detector. The error means that the state of an earlier agent cannot be read; the
// detector is usable nevertheless.
func New(o Options) (*Detector, error) {
	d := &Detector{options: o}
	if o.File == "" {
		return d, nil
	}
	data, err := os.ReadFile(o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	var kept Bypass
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return d, fmt.Errorf(
			"read whether the runtime bypassed the plugin, as an earlier agent detected: %w", err)
	}
	d.stands = &kept
	return d, nil
}

// Note records the state of the chain at a time. repaired reports that the chain had to be repaired,
// so that it is complete only since then. reason is the problem of an incomplete chain. If the node's clock was set since the last call, times before and after are
// not compared: a new span begins, and a bypass is moved to the new clock, so that an ADD ends it.
func (d *Detector) Note(at time.Time, ok, repaired bool, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.at.IsZero() && d.stands != nil && d.stands.Created.After(at) {
		// The clock was set back since an earlier agent detected the bypass.
		d.stands.Created = at.Round(0)
	}
	if step := d.clock.read(at, d.options.Elapsed); step != 0 {
		d.history.open = false
		if step < 0 && d.stands != nil {
			d.stands.Created = d.stands.Created.Add(step)
		}
	}
	d.history.note(at, ok, repaired, reason)
}

// Current returns the current bypass.
func (d *Detector) Current() (Bypass, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stands == nil {
		return Bypass{}, false
	}
	return *d.stands, true
}

// NoteBypass records a pod that [Detector.Explain] classifies as a bypass, and reports whether it
// is a new one. The error means that it is not stored for the next agent.
func (d *Detector) NoteBypass(pod, uid string, created time.Time) (isNew bool, err error) {
	d.mu.Lock()
	in, _ := d.history.spanAt(created)
	next := Bypass{Pod: pod, UID: uid, Created: created, Since: in.from, Pods: 1}
	if d.stands != nil {
		if d.stands.UID == uid || created.Before(d.stands.Created) {
			d.mu.Unlock()
			return false, nil
		}
		next.Pods = d.stands.Pods + 1
	}
	d.stands = &next
	err = d.save()
	d.mu.Unlock()
	d.notifyChanged()
	return true, err
}

// NoteAdd records that the plugin completed a call for a pod at that time: if this is long enough
// after the last bypass, the runtime uses the chain.
func (d *Detector) NoteAdd(at time.Time) error {
	d.mu.Lock()
	if d.stands == nil || at.Before(d.stands.Created.Add(reloadTime)) {
		d.mu.Unlock()
		return nil
	}
	d.stands = nil
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

// save stores the current bypass, or removes the file.
func (d *Detector) save() error {
	if d.options.File == "" {
		return nil
	}
	if d.stands == nil {
		_, err := file.Remove(d.options.File)
		return err
	}
	data, err := json.Marshal(d.stands)
	if err != nil {
		return err
	}
	_, err = file.Write(d.options.File, append(data, '\n'), 0o600)
	return err
}
