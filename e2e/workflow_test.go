package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// byHand contains the targets that no workflow runs, because their results are compared or reviewed
// by a person, or because they only remove files. A comment in nightly.yml names them.
var byHand = []string{"bench", "bench-peers", "bench-packages", "bench-ambient", "manifests", "clean"}

// TestWorkflowsRunEveryTarget compares the targets of the Makefile with ci, which ci.yml runs, and
// with the other workflows.
func TestWorkflowsRunEveryTarget(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\\\n", " ")
	}
	makefile, nightly := read("../Makefile"), read("../.github/workflows/nightly.yml")
	match := func(pattern, text string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no text matches %s", pattern)
		}
		return found[1]
	}
	var run []string
	run = append(run, strings.FieldsFunc(match(`target: \[(.*)\]`, nightly), func(r rune) bool {
		return r == ' ' || r == ','
	})...)
	run = append(run, strings.Fields(match(`TARGETS: (.*)`, nightly))...)
	for _, text := range []string{
		match(`(?s)\nci: ## (.*?)\n\n`, makefile), read("../.github/workflows/ci.yml"),
		read("../.github/workflows/release.yml"),
	} {
		for _, target := range regexp.MustCompile(`(?:make|\(MAKE\)(?: --no-print-directory)?) ([-a-z0-9]+)`).
			FindAllStringSubmatch(text, -1) {
			run = append(run, target[1])
		}
	}
	for _, target := range strings.Fields(match(`\nALL = (.*)`, makefile)) {
		if slices.Contains(run, target) == slices.Contains(byHand, target) {
			t.Errorf("target %s: run by a workflow: %t, want %t", target, slices.Contains(run, target),
				!slices.Contains(byHand, target))
		}
	}
}
