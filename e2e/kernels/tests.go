package kernels

import (
	_ "embed" // for tests.yaml
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/embedded"
)

// testPackages contains the directories of the packages whose tests run.
var testPackages = []string{"nft", "nft/trace", "compat"}

// A testSet is a set of tests of a package.
type testSet struct {
	Package string
	// NFT and Legacy are true if the tests need the backend.
	NFT, Legacy bool
	Tests       []string
}

//go:embed tests.yaml
var testsYAML []byte

// testSets contains the tests in tests.yaml.
var testSets = embedded.Decode[[]testSet](testsYAML)

// runsIn reports whether the machine has the backends that the tests need.
func (t testSet) runsIn(s ModuleSet) bool { return (!t.NFT || s.NFT) && (!t.Legacy || s.Legacy) }

// testsOf returns the tests of a package that run with the modules.
func testsOf(pkg string, s ModuleSet) []string {
	var tests []string
	for _, set := range testSets {
		if set.Package == pkg && set.runsIn(s) {
			tests = append(tests, set.Tests...)
		}
	}
	return tests
}

// pattern returns the regular expression for go test's -run that selects exactly these tests.
func pattern(tests []string) string { return fmt.Sprintf("^(%s)$", strings.Join(tests, "|")) }
