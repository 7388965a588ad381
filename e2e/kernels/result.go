package kernels

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// A Result is the result of a machine.
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

// Facts describes the optional features of a kernel and its modules.
type Facts struct {
	// Hooks reports whether the kernel lists registered hooks (CONFIG_NETFILTER_NETLINK_HOOK).
	Hooks bool
	// Destroy reports whether nf_tables can delete an object without an error if it does not exist
	// (Linux 6.3).
	Destroy bool
	// MissingNFT and MissingLegacy list missing features that rules can use.
	MissingNFT, MissingLegacy []string `json:",omitempty"`
}

// A record contains the output and the result of each step of a machine.
type record struct {
	release string
	lines   map[string][]string
	exits   map[string]guest.Exit
}

func newRecord() *record {
	return &record{lines: map[string][]string{}, exits: map[string]guest.Exit{}}
}

// add adds an event of the machine.
func (r *record) add(e guest.Event) {
	switch {
	case e.Kernel != "":
		r.release = e.Kernel
	case e.Line != nil:
		r.lines[e.Step] = append(r.lines[e.Step], *e.Line)
	case e.Exit != nil:
		r.exits[e.Step] = *e.Exit
	}
}

// output returns the output of a step.
func (r *record) output(step string) string { return strings.Join(r.lines[step], "\n") }

// check returns the result of a machine. The error contains all unexpected results.
func (r *record) check(k Kernel, s ModuleSet) (Result, error) {
	result := Result{
		Kernel: k, Modules: s, Release: r.release, Refused: map[compat.BackendName]string{},
	}
	var errs []error
	for _, name := range backends {
		errs = append(errs, r.checkBackend(&result, name))
	}
	if err := r.checkStep(stepDoctor); err != nil {
		errs = append(errs, fmt.Errorf("rules doctor reports that capture does not work: %w", err))
	}
	if err := errors.Join(r.checkStep(stepFacts), r.decode(stepFacts, &result.Facts)); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, checkFeatures("nf_tables", s.NFT, result.Facts.MissingNFT),
		checkFeatures("iptables-legacy", s.Legacy, result.Facts.MissingLegacy))
	for _, pkg := range testPackages {
		tests := testsOf(pkg, s)
		failed := r.failed(pkg, tests)
		result.Tests += len(tests)
		result.Passed += len(tests) - len(failed)
		for _, test := range failed {
			errs = append(errs, fmt.Errorf("%s: %s did not pass", pkg, test))
		}
	}
	return result, errors.Join(errs...)
}

// checkBackend adds the result of rules apply with the backend. It returns an error if the result
// does not match the module set.
func (r *record) checkBackend(result *Result, name compat.BackendName) error {
	step := stepApply + string(name)
	backend, refusal, err := r.applied(step)
	if err != nil {
		return err
	}
	if !result.Modules.has(name) {
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
			want, r.output(step))
	}
	return errors.Join(r.checkStep(step), r.checkStep(stepCheck+string(name)),
		r.checkStep(stepClean+string(name)))
}

// applied returns the backend that rules apply used, or the error that it printed as refusal.
func (r *record) applied(step string) (backend compat.BackendName, refusal string, err error) {
	var refusals []string
	for d := json.NewDecoder(strings.NewReader(r.output(step))); ; {
		var object struct {
			Backend compat.BackendName
			Error   string
		}
		switch err := d.Decode(&object); {
		case errors.Is(err, io.EOF):
			return backend, strings.Join(refusals, "; "), nil
		case err != nil:
			return "", "", fmt.Errorf("%s: %w: %s", step, err, r.output(step))
		case object.Error != "":
			refusals = append(refusals, object.Error)
		case object.Backend != "":
			backend = object.Backend
		}
	}
}

// checkStep returns an error if the step failed or did not run.
func (r *record) checkStep(step string) error {
	exit, ok := r.exits[step]
	switch {
	case !ok:
		return fmt.Errorf("%s: not run", step)
	case exit.Error != "" || exit.Code != 0:
		return fmt.Errorf("%s: exit code %d %s\n%s", step, exit.Code, exit.Error, r.output(step))
	}
	return nil
}

// decode decodes the output of a step, which is JSON.
func (r *record) decode(step string, into any) error {
	if err := json.Unmarshal([]byte(r.output(step)), into); err != nil {
		return fmt.Errorf("%s: %w: %s", step, err, r.output(step))
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

// failed returns the tests that failed or did not run.
func (r *record) failed(pkg string, tests []string) []string {
	passed := map[string]bool{}
	for _, line := range r.lines[stepTests+pkg] {
		if rest, ok := strings.CutPrefix(line, "--- PASS: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			passed[name] = true
		}
	}
	failed := slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return passed[test] })
	if exit := r.exits[stepTests+pkg]; len(failed) == 0 && len(tests) > 0 && (exit.Code != 0 ||
		exit.Error != "") {
		failed = append(failed, fmt.Sprintf("go test: exit code %d %s", exit.Code, exit.Error))
	}
	return failed
}
