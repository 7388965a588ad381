package kernels

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// A Result is the result of the steps that a machine has run.
type Result struct {
	Kernel  Kernel
	Modules ModuleSet
	// Release is the kernel's release (uname -r).
	Release string
	// Auto is the backend that --backend auto selected.
	Auto compat.BackendName
	// Refused maps each unsupported backend to the error of rules apply with --backend.
	Refused map[compat.BackendName]string
	// Facts are the features of the kernel.
	Facts Facts
	// Tests is the number of tests. Passed is the number of tests that passed.
	Tests, Passed int
}

// Facts describes features of a kernel and its modules.
type Facts struct {
	// Hooks reports whether the kernel lists registered hooks (CONFIG_NETFILTER_NETLINK_HOOK).
	Hooks bool
	// Destroy reports whether nf_tables can delete an object without an error if it does not exist
	// (Linux 6.3).
	Destroy bool
	// MissingNFT and MissingLegacy list the features that rules can use and nf_tables or
	// iptables-legacy lacks.
	MissingNFT, MissingLegacy []string `json:",omitempty"`
}

// A console contains the events of a machine's console: the kernel's release, and the output and
// the exit of each step.
type console struct {
	release string                // of the kernel, as in uname -r
	lines   map[string][]string   // by step
	exits   map[string]guest.Exit // by step
}

// newConsole returns an empty console.
func newConsole() *console {
	return &console{lines: map[string][]string{}, exits: map[string]guest.Exit{}}
}

// add adds an event of the machine.
func (c *console) add(e guest.Event) {
	switch {
	case e.Kernel != "":
		c.release = e.Kernel
	case e.Line != nil:
		c.lines[e.Step] = append(c.lines[e.Step], *e.Line)
	case e.Exit != nil:
		c.exits[e.Step] = *e.Exit
	}
}

// output returns the output of a step.
func (c *console) output(step string) string { return strings.Join(c.lines[step], "\n") }

// result returns the result of the machine. The error contains all unexpected results.
func (c *console) result(k Kernel, s ModuleSet) (Result, error) {
	result := Result{
		Kernel: k, Modules: s, Release: c.release, Refused: map[compat.BackendName]string{},
	}
	var errs []error
	for _, name := range backends {
		errs = append(errs, c.checkBackend(&result, name))
	}
	if err := c.checkStep(stepDoctor); err != nil {
		errs = append(errs, fmt.Errorf("rules doctor does not confirm that capture works: %w", err))
	}
	errs = append(errs, c.checkStep(stepFacts), c.decode(stepFacts, &result.Facts))
	errs = append(errs, checkFeatures("nf_tables", s.NFT, result.Facts.MissingNFT),
		checkFeatures("iptables-legacy", s.Legacy, result.Facts.MissingLegacy))
	for _, pkg := range testPackages {
		tests := testsOf(pkg, s)
		failed := c.failed(pkg, tests)
		result.Tests += len(tests)
		result.Passed += len(tests) - len(failed)
		for _, test := range failed {
			errs = append(errs, fmt.Errorf("%s: %s did not pass", pkg, test))
		}
		exit := c.exits[stepTests+pkg]
		if len(tests) > 0 && len(failed) == 0 && hasFailed(exit) {
			errs = append(errs, fmt.Errorf("%s: the test program failed: exit code %d %s", pkg,
				exit.Code, exit.Error))
		}
	}
	return result, errors.Join(errs...)
}

// checkBackend adds the outcome of rules apply with the backend to the result. It returns an error
// if the outcome does not match the module set.
func (c *console) checkBackend(result *Result, name compat.BackendName) error {
	step := stepApply + string(name)
	backend, refusal, err := c.appliedBackend(step)
	if err != nil {
		return err
	}
	if !result.Modules.supports(name) {
		result.Refused[name] = refusal
		switch {
		case refusal == "":
			return fmt.Errorf("%s: applied by %s, want an error", step, backend)
		case !strings.Contains(refusal, "CONFIG_") || !strings.Contains(refusal, "module "):
			return fmt.Errorf("%s: %s: no kernel option and module in the error", step, refusal)
		}
		return nil
	}
	want := name
	if name == compat.BackendAuto {
		want, result.Auto = result.Modules.auto(), backend
	}
	if backend != want {
		return fmt.Errorf("%s: applied by %s, want %s: %s", step, cmp.Or(backend.String(), "none"),
			want, c.output(step))
	}
	return errors.Join(c.checkStep(step), c.checkStep(stepCheck+string(name)),
		c.checkStep(stepClean+string(name)))
}

// appliedBackend returns the backend that rules apply used. refusal contains the errors that rules
// apply printed; it is empty if there are none. err is not nil if the output is not JSON.
func (c *console) appliedBackend(
	step string,
) (backend compat.BackendName, refusal string, err error) {
	var refusals []string
	for d := json.NewDecoder(strings.NewReader(c.output(step))); ; {
		var object struct {
			Backend compat.BackendName
			Error   string
		}
		switch err := d.Decode(&object); {
		case errors.Is(err, io.EOF):
			return backend, strings.Join(refusals, "; "), nil
		case err != nil:
			return "", "", fmt.Errorf("%s: %w: %s", step, err, c.output(step))
		case object.Error != "":
			refusals = append(refusals, object.Error)
		case object.Backend != "":
			backend = object.Backend
		}
	}
}

// checkStep returns an error if the step failed or did not run.
func (c *console) checkStep(step string) error {
	exit, hasRun := c.exits[step]
	switch {
	case !hasRun:
		return fmt.Errorf("%s: not run", step)
	case hasFailed(exit):
		return fmt.Errorf("%s: exit code %d %s\n%s", step, exit.Code, exit.Error, c.output(step))
	}
	return nil
}

// hasFailed reports whether a step has failed.
func hasFailed(exit guest.Exit) bool { return exit.Error != "" || exit.Code != 0 }

// decode decodes the output of a step, which is JSON, and stores it in target.
func (c *console) decode(step string, target any) error {
	if err := json.Unmarshal([]byte(c.output(step)), target); err != nil {
		return fmt.Errorf("%s: %w: %s", step, err, c.output(step))
	}
	return nil
}

// checkFeatures returns an error if an available backend lacks features.
func checkFeatures(backend string, available bool, missing []string) error {
	if !available || len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the kernel lacks features of %s: %s", backend, strings.Join(missing, ", "))
}

// failed returns the tests that did not pass.
func (c *console) failed(pkg string, tests []string) []string {
	passed := map[string]bool{}
	for _, line := range c.lines[stepTests+pkg] {
		if rest, isPass := strings.CutPrefix(line, "--- PASS: "); isPass {
			name, _, _ := strings.Cut(rest, " ")
			passed[name] = true
		}
	}
	var failed []string
	for _, test := range tests {
		if !passed[test] {
			failed = append(failed, test)
		}
	}
	return failed
}
