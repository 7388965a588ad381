// Package guest implements the init process of a virtual machine. Init runs a list of steps, and
// reports events over the console.
package guest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Paths in the initramfs.
const (
	PlanFile     = "/plan.json"     // the steps
	ModprobePath = "/sbin/modprobe" // the program by which the kernel loads modules
	DepmodPath   = "/sbin/depmod"   // writes the index of modules for modprobe
)

// A Step is a command to run.
type Step struct {
	// Name identifies the step.
	Name string
	// Command contains the program's path and its arguments.
	Command []string
	// Env is added to the environment.
	Env []string `json:",omitempty"`
	// Dir is the working directory; empty for /.
	Dir string `json:",omitempty"`
	// Limit is the time limit by the guest's clock; 0 means no limit.
	Limit time.Duration `json:",omitempty"`
}

// An Event is a message of the guest. Exactly one of the fields other than Step is set.
type Event struct {
	// Kernel is the release of the kernel, as in uname -r. It is in the first event.
	Kernel string `json:",omitempty"`
	// Step is the name of the step that the event belongs to.
	Step string `json:",omitempty"`
	// Line is a line that the step printed to standard output or standard error.
	Line *string `json:",omitempty"`
	// Exit is the result of the step. It is in the step's last event.
	Exit *Exit `json:",omitempty"`
	// Failed is the error that stopped the guest.
	Failed string `json:",omitempty"`
	// Done is set in the last event, after all steps have ended.
	Done bool `json:",omitempty"`
}

// An Exit is the result of a step.
type Exit struct {
	// Code is the exit code, or -1 if the step could not be started or was killed.
	Code int
	// Took is the duration of the step by the guest's clock.
	Took time.Duration
	// Error explains why the step has no exit code, or reports that a child of the step kept the
	// output open.
	Error string `json:",omitempty"`
}

// eventPrefix begins each event in the console's output. It begins with the ASCII record separator,
// which the kernel does not print.
const eventPrefix = "\x1esluice "

// line formats the event as a line of the console.
func (e Event) line() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // every field can be encoded
	}
	return eventPrefix + string(text) + "\n"
}

// ParseEvent parses a line of the console. isEvent reports whether the line contains an event,
// which may follow other output.
func ParseEvent(line string) (e Event, isEvent bool, err error) {
	_, text, isEvent := strings.Cut(line, eventPrefix)
	if !isEvent {
		return Event{}, false, nil
	}
	if err := json.Unmarshal([]byte(strings.TrimRight(text, "\r\n")), &e); err != nil {
		return Event{}, true, fmt.Errorf("event %q: %w", text, err)
	}
	return e, true, nil
}
