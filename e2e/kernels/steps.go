package kernels

import (
	"path"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// Paths of our files in a machine.
const (
	rulesPath = "/sluice/rules"
	factsPath = "/sluice/facts"
)

func testPath(pkg string) string { return "/sluice/" + pkg + "/" + path.Base(pkg) + ".test" }

// engines contains the backends to select, automatic selection first.
var engines = []compat.BackendName{compat.BackendAuto, compat.BackendNFT, compat.BackendLegacy}

// Names of steps. Those of apply, check and cleanup end with the name of the backend.
const (
	stepFacts  = "facts"
	stepDoctor = "doctor"
	stepApply  = "apply "
	stepCheck  = "check "
	stepClean  = "cleanup "
	stepTests  = "tests of "
)

// parameters are the arguments of rules apply: a usual pod's. The pod's address is given, because
// the machine has no network.
var parameters = []string{"-i", "*", "-b", "*", "--pod-ip", "10.244.1.5"}

// testLimit bounds a test that hangs. By the machine's clock, which stops while the host is busy,
// all tests take less than a minute.
const testLimit = 3 * time.Minute

// testsAtOnce is the number of parallel tests. Before Linux 6.12 a test with traffic takes a
// second, most of which the machine's single processor is idle.
const testsAtOnce = "4"

// steps returns the steps of a machine.
func steps(s Shape) []guest.Step {
	// This is the first step, so that no other step has loaded a module that influences the
	// selection.
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
	list = append(list, rulesStep(stepDoctor,
		"doctor"), guest.Step{Name: stepFacts, Command: []string{factsPath}})
	for _, pkg := range testPackages {
		tests := testsOf(pkg, s)
		if len(tests) == 0 {
			continue
		}
		list = append(list, guest.Step{
			Name: stepTests + pkg,
			Command: []string{
				testPath(pkg), "-test.v", "-test.run", pattern(tests), "-test.timeout",
				testLimit.String(), "-test.parallel", testsAtOnce,
			},
			Env:   []string{"SLUICE_REQUIRE=1"},
			Dir:   "/sluice/" + pkg,
			Limit: testLimit + time.Second,
		})
	}
	return list
}

func rulesStep(name, verb string, args ...string) guest.Step {
	return guest.Step{
		Name:    name,
		Command: slices.Concat([]string{rulesPath, verb, "-o", "json"}, parameters, args),
	}
}
