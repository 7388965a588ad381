package kernels

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// successful returns the console of a machine with the modules, after all steps have ended as
// expected.
func successful(s ModuleSet) *console {
	c := newConsole()
	c.add(guest.Event{Kernel: "5.10.0"})
	addLine := func(step, text string) { c.add(guest.Event{Step: step, Line: &text}) }
	for _, step := range newSteps(s) {
		code := 0
		switch verb, name, _ := strings.Cut(step.Name, " "); {
		case verb+" " == stepApply && !s.supports(compat.BackendName(name)):
			addLine(step.Name, `{"error":"the kernel has no such thing"}`)
			addLine(step.Name, `{"error":"this kernel does not support it (CONFIG_IT, module it)"}`)
			code = 3
		case verb+" " == stepApply:
			backend := compat.BackendName(name)
			if backend == compat.BackendAuto {
				backend = s.auto()
			}
			addLine(step.Name,
				fmt.Sprintf("{\n  \"outcome\": \"created\",\n  \"backend\": %q\n}",
					string(backend)))
		case step.Name == stepFacts:
			addLine(step.Name, `{"Hooks":true,"Destroy":false}`)
		case strings.HasPrefix(step.Name, stepTests):
			for _, test := range testsOf(strings.TrimPrefix(step.Name, stepTests), s) {
				addLine(step.Name, "--- PASS: "+test+" (0.01s)")
			}
		}
		c.add(guest.Event{Step: step.Name, Exit: &guest.Exit{Code: code}})
	}
	return c
}

func TestExpectedResultsAreAccepted(t *testing.T) {
	for _, s := range ModuleSets {
		result, err := successful(s).result(Kernels[0], s)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if result.Auto != s.auto() || result.Passed != result.Tests || result.Tests == 0 ||
			!result.Facts.Hooks || result.Release != "5.10.0" {
			t.Errorf("%s: result %+v, want backend %s, release 5.10.0, the hooks, and all tests passed", s.Name,
				result, s.auto())
		}
		const words = "the kernel has no such thing; this kernel does not support it (CONFIG_IT, module it)"
		for _, backend := range backends {
			if got := result.Refused[backend]; (got == words) == s.supports(backend) {
				t.Errorf("%s: backend %s is rejected with %q, want %q only if unsupported (supported: %t)",
					s.Name, backend, got, words, s.supports(backend))
			}
		}
	}
}

func TestUnexpectedResultsAreReported(t *testing.T) {
	all, noNFT, noLegacy := ModuleSets[0], ModuleSets[1], ModuleSets[2]
	for _, row := range []struct {
		name    string
		modules ModuleSet
		change  func(c *console)
		want    string
	}{
		{"auto selects the wrong backend", all, func(c *console) {
			c.lines[stepApply+"auto"] = []string{`{"backend":"legacy"}`}
		}, "apply auto: applied by iptables-legacy, want nft"},
		{"auto selects no backend", noNFT, func(c *console) {
			c.lines[stepApply+"auto"] = []string{`{"error":"no"}`}
		}, "apply auto: applied by none, want iptables-legacy"},
		{"a missing backend succeeds", noLegacy, func(c *console) {
			c.lines[stepApply+"legacy"] = []string{`{"backend":"legacy"}`}
		}, "want an error"},
		{"an error does not name what is missing", noNFT, func(c *console) {
			c.lines[stepApply+"nft"] = []string{`{"error":"invalid argument (CONFIG_IT)"}`}
		}, "no kernel option and module in the error"},
		{"the command crashes", all, func(c *console) {
			c.lines[stepApply+"nft"] = []string{"panic: no"}
		}, "apply nft: "},
		{"a check finds a difference", all, func(c *console) {
			c.exits[stepCheck+"legacy"] = guest.Exit{Code: 1}
		}, "check legacy: exit code 1"},
		{"rules doctor reports a failure", all, func(c *console) {
			c.exits[stepDoctor] = guest.Exit{Code: 3}
		}, "rules doctor does not confirm"},
		{"the facts are missing", all, func(c *console) {
			delete(c.exits, stepFacts)
		}, "facts: not run"},
		{"the kernel lacks a feature of an available backend", all, func(c *console) {
			c.lines[stepFacts] = []string{`{"MissingNFT":["TPROXY"]}`}
		}, "lacks features of nf_tables: TPROXY"},
		{"a test fails", all, func(c *console) {
			lines := c.lines[stepTests+"compat"]
			lines[0] = strings.Replace(lines[0], "PASS", "FAIL", 1)
		}, "compat: TestThisKernelSupportsIPTablesLegacy did not pass"},
		{"a test did not run", all, func(c *console) {
			c.lines[stepTests+"nft"] = c.lines[stepTests+"nft"][1:]
		}, "nft: TestThisKernelSupportsAllFeatures did not pass"},
		{"all tests pass, but their program fails", all, func(c *console) {
			c.exits[stepTests+"nft"] = guest.Exit{Code: 1}
		}, "nft: the test program failed: exit code 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := successful(row.modules)
			row.change(c)
			if _, err := c.result(Kernels[0], row.modules); err == nil ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

func TestFailureOfATestProgramDoesNotChangeTheNumberOfPassedTests(t *testing.T) {
	c := successful(ModuleSets[0])
	c.exits[stepTests+"nft"] = guest.Exit{Code: 1}
	result, err := c.result(Kernels[0], ModuleSets[0])
	if err == nil || result.Passed != result.Tests {
		t.Errorf("%d of %d tests passed, error %v; want all tests and an error", result.Passed,
			result.Tests, err)
	}
}

// Without this test, the old name of a renamed test would be noticed only when a machine runs the
// tests.
func TestSelectedTestsExist(t *testing.T) {
	for _, set := range testSets {
		files, err := filepath.Glob(filepath.Join("..", "..", set.Package, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		for _, test := range set.Tests {
			if !strings.Contains(source.String(), "\nfunc "+test+"(t *testing.T)") {
				t.Errorf("%s has no test %s", set.Package, test)
			}
		}
	}
}

func TestTestsOfAvailableBackendsAreSelected(t *testing.T) {
	const legacyTest = "TestLegacyDeliversCallsToTheExpectedListeners"
	for _, s := range ModuleSets {
		if tests := testsOf("nft", s); s.NFT != slices.Contains(tests, "TestTrafficOfASidecar") {
			t.Errorf("%s: selected tests of nft: %v, want tests of nftables: %v", s.Name, tests, s.NFT)
		}
		if tests := testsOf("compat", s); s.Legacy != slices.Contains(tests, legacyTest) {
			t.Errorf("%s: selected tests of compat: %v, want tests of iptables-legacy: %v", s.Name, tests,
				s.Legacy)
		}
	}
}

func TestPatternSelectsOnlyTheTests(t *testing.T) {
	p := regexp.MustCompile(pattern([]string{"TestA", "TestB"}))
	for name, want := range map[string]bool{
		"TestA": true, "TestB": true, "TestAB": false, "XTestA": false,
	} {
		if got := p.MatchString(name); got != want {
			t.Errorf("%s matches %s: %t, want %t", p, name, got, want)
		}
	}
}

func TestEveryPackageIsPinned(t *testing.T) {
	list, err := debian.ParseList(pinnedPackages)
	if err != nil {
		t.Fatal(err)
	}
	has := func(arch, pattern string) bool {
		return slices.ContainsFunc(list, func(p debian.Package) bool {
			return p.Arch == arch && p.Match(pattern) && len(p.SHA256) == 64
		})
	}
	for _, k := range Kernels {
		for _, pattern := range append([]string{k.pattern()}, programs...) {
			if !has(k.Arch, pattern) {
				t.Errorf("%s contains no package %s for %s", packagesFile, pattern, k.Arch)
			}
		}
	}
}

func TestUnpackOnceLeavesNoIncompleteDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "unpacked")
	broken := errors.New("broken")
	fills := 0
	fill := func(err error) error {
		return unpackOnce(dir, func(dir string) error {
			fills++
			return errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), err)
		})
	}
	if err := fill(broken); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if remaining, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(remaining) > 0 {
		t.Errorf("files after a failure: %v, error %v, want none", remaining, err)
	}
	for range 2 {
		if err := fill(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil || fills != 2 {
		t.Errorf("filled %d times, want twice; error %v", fills, err)
	}
}
