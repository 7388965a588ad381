package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseLine parses a command line. Blanks separate its words.
func parseLine(line string) (*inputs, error) {
	in := &inputs{sections: captureSectionsAnd(sectionDryRun)}
	in.load()
	_, err := in.parseFlags("rules show", strings.Fields(line))
	return in, err
}

// parseFlags declares only the flags that flagNames finds in the command line.
func TestFlagsAreFoundInAllSpellings(t *testing.T) {
	want := map[string][]string{
		"istio-inbound-ports": {"80"}, "istio-service-cidr": {"*"},
		"istio-inbound-interception-mode": {"TPROXY"}, "dry-run": {"true"},
	}
	for _, line := range []string{
		"-b 80 -i * -m TPROXY -n", "-b=80 -i=* -m=TPROXY -n=true", "-b80 -i* -mTPROXY -n",
		"-nb 80 -ni* -nm TPROXY",
		"--istio-inbound-ports 80 --istio-service-cidr=* --istio-inbound-interception-mode TPROXY --dry-run",
		// The value of -m looks like a flag.
		"--istio-inbound-ports=80 -i * -m --proxy-uid --istio-inbound-interception-mode=TPROXY --dry-run=true",
	} {
		in, err := parseLine(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if d := cmp.Diff(want, in.given); d != "" {
			t.Errorf("%s (-want +got)\n%s", line, d)
		}
	}
}

// Collecting the letters of short flags must not copy the letters that are already collected.
func TestFlagNamesDoesNotAllocateForEachFlag(t *testing.T) {
	args := slices.Repeat([]string{"-x10.96.0.1/32"}, 20_000)
	if n := testing.AllocsPerRun(1, func() { flagNames(args) }); n > 100 {
		t.Errorf("%v allocations for 20000 flags, want at most 100", n)
	}
}

func TestErrorsOfFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--istio-inbound-port 80": "unknown flag: --istio-inbound-port; did you mean --istio-inbound-ports?; rules show --help-all lists the flags",
		"-nZ":                     "unknown shorthand flag: 'Z' in -Z; rules show --help-all lists the flags",
		"-n -b":                   "flag needs an argument: 'b' in -b; rules show --help-all lists the flags",
		"-h":                      "pflag: help requested",
	} {
		if _, err := parseLine(line); err == nil || err.Error() != want {
			t.Errorf("%s: error %v\nwant %s", line, err, want)
		}
	}
}
