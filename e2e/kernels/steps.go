package kernels

import (
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// Where a machine has what is ours.
const (
	rulesPath = "/sluice/rules"
	factsPath = "/sluice/facts"
)

func testPath(pkg string) string { return "/sluice/" + pkg + "/" + pkg + ".test" }

// engines are those that are asked for by name, automatic choice first.
var engines = []compat.BackendName{compat.BackendAuto, compat.BackendNFT, compat.BackendLegacy}

// Names of steps; those that apply, check and clean end with the name of the backend.
const (
	stepFacts  = "facts"
	stepDoctor = "doctor"
	stepApply  = "apply "
	stepCheck  = "check "
	stepClean  = "cleanup "
	stepTests  = "tests of "
)

// The parameters with which rules are applied: those of a usual pod, whose network is not there and
// therefore named.
var parameters = []string{"-i", "*", "-b", "*", "--pod-ip", "10.244.1.5"}

// testLimit is for a test that hangs. By the machine's clock, which does not run while the host is
// busy, all take no minute.
const testLimit = 3 * time.Minute

// testsAtOnce is how many tests run at the same time: before Linux 6.12 one of traffic takes a
// second, for most of which the machine's one processor is idle.
const testsAtOnce = "4"

// steps are what a machine does.
func steps(s Shape) []guest.Step {
	// First of all, so that the choice is not helped by a module that something else has loaded.
	var list []guest.Step
	for _, e := range engines {
		name := string(e)
		list = append(list, rulesStep(stepApply+name, "apply", "--backend", name))
		if s.has(e) {
			list = append(list, rulesStep(stepCheck+name, "check"), guest.Step{
				Name: stepClean + name, Command: []string{rulesPath, "cleanup"},
			})
		}
	}
	list = append(list, rulesStep(stepDoctor, "doctor"), guest.Step{Name: stepFacts, Command: []string{factsPath}})
	for _, pkg := range testPackages {
		tests := testsOf(pkg, s)
		if len(tests) == 0 {
			continue
		}
		list = append(list, guest.Step{
			Name: stepTests + pkg,
			Command: []string{
				testPath(pkg), "-test.v", "-test.run", pattern(tests), "-test.timeout", testLimit.String(), "-test.parallel", testsAtOnce,
			},
			Env:   []string{"SLUICE_REQUIRE=1"},
			Dir:   "/sluice/" + pkg,
			Limit: testLimit + time.Second,
		})
	}
	return list
}

func rulesStep(name, verb string, args ...string) guest.Step {
	return guest.Step{Name: name, Command: slices.Concat([]string{rulesPath, verb, "-o", "json"}, parameters, args)}
}
