package kernels

import (
	"path"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// Paths of Sluice's files in a machine.
const (
	rulesPath = "/sluice/rules"
	factsPath = "/sluice/facts"
)

// testPath returns the path of a package's test program.
func testPath(pkg string) string { return "/sluice/" + pkg + "/" + path.Base(pkg) + ".test" }

// backends contains the values of --backend, auto first.
var backends = []compat.BackendName{compat.BackendAuto, compat.BackendNFT, compat.BackendLegacy}

// Names of steps. The name of the backend follows apply, check and cleanup; the directory of the
// package follows tests.
const (
	stepFacts  = "facts"
	stepDoctor = "doctor"
	stepApply  = "apply "
	stepCheck  = "check "
	stepClean  = "cleanup "
	stepTests  = "tests of "
)

// parameters are the arguments of the rules command for an ordinary pod. They include the pod's
// address, because the machine has no network.
var parameters = []string{"-i", "*", "-b", "*", "--pod-ip", "10.244.1.5"}

// testLimit is the time limit of the tests of a package. All tests take less than a minute by the
// machine's clock, which slows down while the host is busy.
const testLimit = 3 * time.Minute

// parallelTests is the number of parallel tests. Before Linux 6.12, a test with traffic takes a
// second, during which the machine's single processor is mostly idle.
const parallelTests = "4"

// newSteps returns the steps of a machine. The steps with backend auto are first, because the later
// steps load modules, which may affect the selection.
func newSteps(s ModuleSet) []guest.Step {
	var steps []guest.Step
	for _, backend := range backends {
		name := string(backend)
		steps = append(steps, rulesStep(stepApply+name, "apply", "--backend", name))
		if s.supports(backend) {
			steps = append(steps, rulesStep(stepCheck+name, "check"), guest.Step{
				Name: stepClean + name, Command: []string{rulesPath, "cleanup"},
			})
		}
	}
	steps = append(steps, rulesStep(stepDoctor, "doctor"),
		guest.Step{Name: stepFacts, Command: []string{factsPath}})
	for _, pkg := range testPackages {
		tests := testsOf(pkg, s)
		if len(tests) == 0 {
			continue
		}
		steps = append(steps, guest.Step{
			Name: stepTests + pkg,
			Command: []string{
				testPath(pkg), "-test.v", "-test.run", pattern(tests), "-test.timeout",
				testLimit.String(), "-test.parallel", parallelTests,
			},
			Env:   []string{"SLUICE_REQUIRE=1"},
			Dir:   "/sluice/" + pkg,
			Limit: testLimit + time.Second,
		})
	}
	return steps
}

// rulesStep returns a step that runs the rules command with the parameters.
func rulesStep(name, verb string, args ...string) guest.Step {
	return guest.Step{
		Name:    name,
		Command: slices.Concat([]string{rulesPath, verb, "-o", "json"}, parameters, args),
	}
}
