// Package chart_test checks that the chart's files match the table of the agent's settings. The
// module e2e/deploy tests the rendered chart.
package chart_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/rulelock"
	"github.com/sluice-mesh/sluice/install/settings"
)

var update = flag.Bool("update", false,
	"write the generated files and the tables of README.md from values.yaml and the tables in Go")

// patterns contains patterns of the texts that kinds allow, by the kinds' descriptions. The templates
// compare values with them, because an error of the schema would contain the pattern instead of the
// description.
var patterns = map[string]string{
	settings.Path.Want:          `^/`,
	settings.FileName.Want:      `^[^/]+\.(conf|conflist)$`,
	settings.ListName.Want:      `^[^/]+\.conflist$`,
	settings.Names.Want:         namePattern,
	settings.ContainerName.Want: namePattern,
	settings.TaintKey.Want:      qualifiedPattern,
	settings.QualifiedName.Want: qualifiedPattern,
	settings.LabelValue.Want:    `^[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$`,
}

const (
	namePattern      = `^[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?$`
	qualifiedPattern = `^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$`
)

// element returns the kind of the elements of a list, or the kind itself.
func element(k settings.Kind) settings.Kind {
	if k.Want == settings.Names.Want {
		return settings.ContainerName
	}
	return k
}

// TestRejectionsFollowTheTable checks that the chart rejects variables under the key env that have
// their own key, must not be changed, or have no effect, and texts that the agent rejects.
func TestRejectionsFollowTheTable(t *testing.T) {
	var want strings.Builder
	fmt.Fprintln(&want, "# Generated from the table of settings; see settings_test.go.\nkeys:")
	for _, s := range settings.All() {
		switch {
		case s.Helm != "":
			fmt.Fprintf(&want, "  %s: set the value %s instead\n", s.Env, s.Helm)
		case s.Required:
			fmt.Fprintf(&want, "  %s: cannot be set here, because the chart sets it\n", s.Env)
		case s.Fixed:
			fmt.Fprintf(&want,
				"  %s: cannot be set here, because the mounts and permissions of the chart depend on it\n", s.Env)
		}
	}
	fmt.Fprintln(&want, "accepted:")
	for _, s := range settings.All() {
		if s.Helm == "" && !s.Required && !s.Fixed {
			fmt.Fprintf(&want, "  - %s\n", s.Env)
		}
	}
	fmt.Fprintln(&want, "refused:")
	for _, r := range settings.Refused() {
		fmt.Fprintf(&want, "  %s: %q\n", r.Env, r.Reason)
	}
	fmt.Fprintln(&want, "texts:")
	for _, s := range settings.All() {
		if pattern := patterns[s.Kind.Want]; s.Helm != "" && pattern != "" {
			fmt.Fprintf(&want, "  %s: {pattern: %q, want: %q}\n", s.Helm, pattern, element(s.Kind).Want)
		}
	}
	compare(t, "files/settings.yaml", []byte(want.String()))
}

// TestDefaultsFollowValues checks that files/defaults.yaml contains the values of values.yaml,
// which templates cannot read. It omits fields that Kubernetes defines: null removes them from the
// objects.
func TestDefaultsFollowValues(t *testing.T) {
	var values map[string]any
	load(t, "values.yaml", &values)
	delete(values, "resources")
	delete(values, "updateStrategy")
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	const comment = "# Generated from values.yaml; see settings_test.go.\n"
	compare(t, "files/defaults.yaml", append([]byte(comment), text...))
}

// TestLimitsFollowTheAgent checks that files/limits.yaml, and the texts about it, contain constants
// of the agent.
func TestLimitsFollowTheAgent(t *testing.T) {
	reserve := int(agent.UninstallReserve(false).Seconds())
	ambientReserve := int(agent.UninstallReserve(true).Seconds())
	compare(t, "files/limits.yaml", fmt.Appendf(nil, "# Generated from constants of the agent; see settings_test.go.\n"+
		"uninstallReserveSeconds: %d\nambientUninstallReserveSeconds: %d\nminimumMemoryMebibytes: %d\n", reserve,
		ambientReserve, agent.MinMemory>>20))
	s, _ := settings.Find("SLUICE_UNINSTALL_TIMEOUT")
	if want := fmt.Sprintf("at least %d s less than terminationGracePeriodSeconds, %d s in ambient mode", reserve,
		ambientReserve); !strings.HasSuffix(s.Help, want) {
		t.Errorf("the help of %s is %q, want the suffix %q", s.Env, s.Help, want)
	}
	for _, text := range []struct{ file, want string }{
		{"values.yaml", fmt.Sprintf("by %d\n# seconds, or %d in ambient mode", reserve, ambientReserve)},
		{"values.yaml", fmt.Sprintf("below %dMi is refused", agent.MinMemory>>20)},
		{"values.yaml", fmt.Sprintf("up to %d MiB to read the rules of a pod", rulelock.MaxReadMemory>>20)},
		{"values.schema.json", fmt.Sprintf("below %dMi is refused", agent.MinMemory>>20)},
		{"THREATS.md", fmt.Sprintf("at most %d MiB of memory", rulelock.MaxReadMemory>>20)},
	} {
		content, err := os.ReadFile(text.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), text.want) {
			t.Errorf("%s does not contain %q", text.file, text.want)
		}
	}
}

func TestReadmeHasTheTable(t *testing.T) {
	var table strings.Builder
	fmt.Fprintln(&table, "| variable | key in values | default | purpose |\n|---|---|---|---|")
	for _, s := range settings.All() {
		key, standard := "`"+s.Helm+"`", "`"+s.Default+"`"
		switch {
		case s.Fixed || s.Required:
			key = "-"
		case s.Helm == "":
			key = "`env." + s.Env + "`"
		}
		if s.Chart != "" {
			standard = "`" + s.Chart + "`"
		} else if s.Default == "" {
			standard = "-"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s (%s) |\n", s.Env, key, standard, s.Help,
			s.Kind.Want)
	}
	table.WriteString("\nThese variables are refused:\n\n")
	for _, r := range settings.Refused() {
		fmt.Fprintf(&table, "* `%s` %s\n", r.Env, r.Reason)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
	before, rest, _ := bytes.Cut(readme, []byte(begin))
	_, after, found := bytes.Cut(rest, []byte(end))
	if !found {
		t.Fatalf("README.md has no lines %q and %q", begin, end)
	}
	compare(t, "README.md",
		fmt.Appendf(nil, "%s%s%s%s%s", before, begin, table.String(), end, after))
}

// compare compares a file with its expected content, or writes it.
func compare(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; go test ./install/chart -update rewrites it (-generated +file):\n%s",
			name, diff)
	}
}
