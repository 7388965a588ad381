package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/rules"
)

// A parameter is one input. Help, parsing and the names in errors all come from its entry in
// [allParameters].
type parameter struct {
	flag, short string
	// variables are the environment variables. If several are set, the last takes precedence. The
	// flag takes precedence over all variables.
	variables []string
	value     string   // placeholder of the value in help; empty for a Boolean
	words     []string // the allowed values, if they are a fixed set
	fallback  string   // the default, as shown in help
	help      string
	field     string // the field of rules.Redirect, for faults of validation
	section   section
	mode      mode
	// list means that the value is a list. The values of a repeated flag are joined, and an empty
	// variable is an empty list. For other parameters an empty variable counts as not set.
	list   bool
	repeat bool // the flag may be repeated, and its values are kept separately
	set    func(p *parameters, text string) error
}

// A section groups parameters: a command has all parameters of a section or none.
type section uint8

// The sections, in the order of the help.
const (
	sectionProxy section = iota
	sectionInbound
	sectionTProxy
	sectionOutbound
	sectionDNS
	sectionPod
	sectionMode
	sectionAmbient
	sectionSluice
	sectionNamespace
	sectionAgent
	sectionNode
	sectionRunDir
	sectionBackend
	sectionShow
	sectionLive
	sectionExplain
	sectionDiff
	sectionTrace
	sectionBudget
	sectionDoctorBudget
	sectionCleanup
	sectionDryRun
	sectionAction
	sectionProbe
	sectionOutput
	sectionIgnored
)

// assign returns a function that stores the result of a parser, unless the parser failed.
func assign[T any](to *T) func(T, error) error {
	return func(value T, err error) error {
		if err == nil {
			*to = value
		}
		return err
	}
}

// setBool returns a function that sets a Boolean.
func setBool(field func(*parameters) *bool) func(*parameters, string) error {
	return func(p *parameters, text string) error { return assign(field(p))(rules.ParseBool(text)) }
}

// setText returns a function that sets a text without validating it.
func setText(field func(*parameters) *string) func(*parameters, string) error {
	return func(p *parameters, text string) error { *field(p) = text; return nil }
}

// setDuration returns a function that sets a duration above 0. examples completes its error.
func setDuration(
	field func(*parameters) *time.Duration, examples string,
) func(*parameters, string) error {
	return func(p *parameters, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a duration above 0, such as %s", text, examples)
		}
		*field(p) = d
		return nil
	}
}

// choice returns a function that sets a text to one of the allowed words.
func choice(field func(*parameters) *string, allowed ...string) func(*parameters, string) error {
	return func(p *parameters, text string) error {
		if !slices.Contains(allowed, text) {
			return fmt.Errorf("%q is not allowed: want %s", text,
				strings.Join(slices.DeleteFunc(slices.Clone(allowed), isEmpty), " or "))
		}
		*field(p) = text
		return nil
	}
}

// isEmpty reports whether the text is empty.
func isEmpty(text string) bool { return text == "" }

// setNetns sets the namespace of --netns. It rejects an empty path, which a script passes if its
// variable is unset: the command must not use the current namespace, which may be the host's.
func (p *parameters) setNetns(text string) error {
	if text == "" {
		return errors.New("the path is empty: leave the flag out to mean the current namespace")
	}
	p.netnsPath = text
	return nil
}

// setPID sets the process of --pid.
func (p *parameters) setPID(text string) error {
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || pid == 0 {
		return fmt.Errorf("%q is not the id of a process", text)
	}
	p.pid = int(pid)
	return nil
}

// setWatch sets the interval of --watch.
func (p *parameters) setWatch(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < minWatch || d > maxWatch {
		return fmt.Errorf("%q is not a duration from %s to %s, such as 2s", text, minWatch,
			maxWatch)
	}
	p.watch = d
	return nil
}

// The limits of --watch.
const (
	minWatch = 100 * time.Millisecond
	maxWatch = time.Hour
)
