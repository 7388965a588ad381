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

// settled is how long after a change of the chain a runtime may still use the one that it had read:
// some tenths of a second until it reads the new one (containerd), and then until the sandbox is
// made.
const settled = 5 * time.Second

// Options of a detector. The zero value has the plugin in the chain, and forgets a bypass when the
// process ends.
type Options struct {
	// Optional says that pods may start without the plugin, since it is not in the chain: they must
	// ask for its network. Then nothing is a bypass.
	Optional bool
	// File keeps a bypass that stands, for the next agent. It should not outlast a reboot.
	File string
	// Look looks at the chain now, and notes what it has found by [Detector.Note]. It is called
	// before a bypass is told.
	Look func()
	// Changed is called when a bypass begins, is repeated, or is over, and no lock is held.
	Changed func()
}

// A Detector knows since when the chain is as it should be, and whether the runtime passes it by.
// Use [New]. Its methods are safe for concurrent use.
type Detector struct {
	options Options

	mu      sync.Mutex
	history history
	stands  *Bypass
}

// A Bypass is a pod that was started without the plugin while the chain was as it should be.
type Bypass struct {
	// Pod is the last such pod, as namespace/name, and UID its own.
	Pod string `json:"pod"`
	UID string `json:"uid"`
	// Created is when its sandbox was made, Since from when on the chain had been as it should be.
	Created time.Time `json:"created"`
	Since   time.Time `json:"since"`
	// Pods counts the pods without an ADD since the last one that had one.
	Pods int `json:"pods"`
}

// String says it, and what to do.
func (b Bypass) String() string {
	return fmt.Sprintf("the runtime passes the plugin by: it made the sandbox of pod %s at %s without calling it, although the node's CNI chain "+
		"has been as it should be since %s (%d such pods); it reads another directory, or has not read the configuration again: "+
		"restart the container runtime, and look at its cni conf_dir; the next pod that the plugin is called for shows that it is over",
		b.Pod, stamp(b.Created), stamp(b.Since), b.Pods)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// New returns a detector. The error says why what an earlier agent has kept is not known; the
// detector is of use nevertheless.
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
		return d, fmt.Errorf("whether the runtime passes the plugin by, as an earlier agent found: %w", err)
	}
	d.stands = &kept
	return d, nil
}

// Note takes in what the chain was found to be at a time. Changed says that it is as it should be
// only since then, and why what is wrong.
func (d *Detector) Note(at time.Time, ok, changed bool, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.history.note(at, ok, changed, why)
}

// Standing returns the bypass that stands.
func (d *Detector) Standing() (Bypass, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stands == nil {
		return Bypass{}, false
	}
	return *d.stands, true
}

// Passed notes a pod that [Detector.Explain] calls a bypass, and reports whether it is a new one.
// The error says that the next agent will not know.
func (d *Detector) Passed(pod, uid string, created time.Time) (isNew bool, err error) {
	d.mu.Lock()
	in, _ := d.history.during(created)
	next := Bypass{Pod: pod, UID: uid, Created: created, Since: in.from, Pods: 1}
	if d.stands != nil {
		if d.stands.UID == uid || created.Before(d.stands.Created) {
			d.mu.Unlock()
			return false, nil
		}
		next.Pods = d.stands.Pods + 1
	}
	d.stands = &next
	err = d.keep()
	d.mu.Unlock()
	d.changed()
	return true, err
}

// Added notes that the plugin was called for a pod, and was done at that time: if that is long
// enough after the last bypass, the runtime uses the chain.
func (d *Detector) Added(at time.Time) error {
	d.mu.Lock()
	if d.stands == nil || at.Before(d.stands.Created.Add(settled)) {
		d.mu.Unlock()
		return nil
	}
	d.stands = nil
	err := d.keep()
	d.mu.Unlock()
	d.changed()
	return err
}

func (d *Detector) changed() {
	if d.options.Changed != nil {
		d.options.Changed()
	}
}

// keep writes what stands, or removes the file.
func (d *Detector) keep() error {
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
