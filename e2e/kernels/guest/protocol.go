// Package guest is what runs inside a virtual machine: the first process, which does a list of
// steps and tells of each over the console, and the loader of modules that the kernel calls.
package guest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Files of the initramfs that the guest reads, and the directory of what it runs.
const (
	PlanFile    = "/plan.json"
	ModulesFile = "/modules.json"
)

// A Step is a command to run.
type Step struct {
	// Name tells the step from others.
	Name string
	// Command is the program's path and its arguments.
	Command []string
	// Env is added to the environment.
	Env []string `json:",omitempty"`
	// Dir is the working directory; empty for /.
	Dir string `json:",omitempty"`
	// Limit is how long it may take by the clock of the guest; 0 for as long as it takes.
	Limit time.Duration `json:",omitempty"`
}

// An Event is something that the guest tells. Exactly one of the fields is set besides Step.
type Event struct {
	// Kernel is the release of the kernel, as uname -r has it: the first event.
	Kernel string `json:",omitempty"`
	// Step is the name of the step that the event is about.
	Step string `json:",omitempty"`
	// Line is a line that the step printed, to standard output or error.
	Line *string `json:",omitempty"`
	// Exit reports that the step has ended.
	Exit *Exit `json:",omitempty"`
	// Failed says what kept the guest from its work.
	Failed string `json:",omitempty"`
	// Done reports that all steps have been done: the last event.
	Done bool `json:",omitempty"`
}

// An Exit is the end of a step.
type Exit struct {
	// Code is the exit code, -1 when the step could not be started or was ended.
	Code int
	// Took is how long the step ran by the clock of the guest.
	Took time.Duration
	// Error says why there is no exit code.
	Error string `json:",omitempty"`
}

// mark begins the lines of the console that are events.
const mark = "\x1esluice "

// line is the event as a line of the console.
func (e Event) line() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // no field can fail
	}
	return mark + string(text) + "\n"
}

// ParseEvent reads a line of the console. Not ok: it is not an event but something that the kernel
// printed.
func ParseEvent(line string) (e Event, ok bool, err error) {
	_, text, ok := strings.Cut(line, mark)
	if !ok {
		return Event{}, false, nil
	}
	if err := json.Unmarshal([]byte(strings.TrimRight(text, "\r\n")), &e); err != nil {
		return Event{}, true, fmt.Errorf("event %q: %w", text, err)
	}
	return e, true, nil
}
