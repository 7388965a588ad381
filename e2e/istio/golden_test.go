package istio_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// leftovers maps the recorded runs that did not remove all rules of an earlier run to a description
// of the remaining rules. Sluice's rules for the parameters of these runs do not include them.
var leftovers = map[string]string{
	"126-reconcile-from-tproxy":        "rules for TPROXY and DNS are not removed",
	"12a-rerun-dns-to-nodns-reconcile": "conntrack zones for DNS are not removed",
}

// rejectedModes contains the recorded runs with a mode that Sluice rejects. Istio treats these
// modes as REDIRECT.
var rejectedModes = []string{"099-mode-lowercase", "09a-mode-none"}

// TestRecordedRuns compares Sluice's rules with the rules of recorded runs of istio-iptables. The
// recordings are in $SLUICE_GOLDEN, or else in ../shared/golden, relative to the root of the
// checkout. Without recordings, the test is skipped.
func TestRecordedRuns(t *testing.T) {
	dir := cmp.Or(os.Getenv("SLUICE_GOLDEN"), filepath.Join("..", "..", "..", "shared", "golden"))
	cases, err := filepath.Glob(filepath.Join(dir, "[0-9]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Skipf("no recorded runs of istio-iptables in %s: set SLUICE_GOLDEN to their directory", dir)
	}
	for _, dir := range cases {
		name := filepath.Base(dir)
		var statuses map[string][]any
		readJSON(t, filepath.Join(dir, "rc.json"), &statuses)
		if statuses["legacy"][0] != 0.0 || slices.Contains(rejectedModes, name) {
			continue // the matrix covers rejected configurations
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cleaned := recorded(t, dir)
			sluiceSide := s.strictSide()
			if cleaned {
				sluiceSide = diff.Side{}
			}
			r := diff.Decide(sluiceSide, diff.Side{Ruleset: recordedRules(t, dir)}, diff.Options{})
			want := diff.Equivalent
			if leftovers[name] != "" {
				want = diff.Different
			}
			if got := r.StrictVerdict(); got != want {
				t.Errorf("%s\nstrict rules and recorded rules: %s, want %s (%s)\n%s", s, got,
					want, leftovers[name],
					describe(r, "Sluice", "recorded"))
			}
		})
	}
}

// recorded returns the test case of a recorded run. cleaned is true if the run only removed rules.
func recorded(t *testing.T, dir string) (s testCase, cleaned bool) {
	t.Helper()
	var args map[string]any
	readJSON(t, filepath.Join(dir, "args.json"), &args)
	pods := map[any]istio.Pod{"v4": istio.IPv4Pod, "v6": istio.IPv6Pod, "dual": istio.DualPod}
	c := istio.Configuration{Name: filepath.Base(dir), Pod: pods[args["_family"]]}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		text := fmt.Sprintf("%s=%v", name, args[name])
		switch {
		case name == "_nameservers":
			for server := range strings.SplitSeq(fmt.Sprint(args[name]), ",") {
				c.ResolvConf += "nameserver " + server + "\n"
			}
		case name[0] == '_':
		case strings.ToUpper(name) == name:
			c.Env = append(c.Env, text)
		default:
			c.Args = append(c.Args, "--"+text)
		}
	}
	return newTestCase(t, c), args["cleanup-only"] == true
}

// recordedRules returns the rules of iptables-legacy after the run, without routes, because even a
// run that only removes rules adds routes.
func recordedRules(t *testing.T, dir string) rules.Ruleset {
	t.Helper()
	return parseSaved(t, [2]string{
		"legacy-v4.save", "legacy-v6.save",
	}, func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		return string(text), err
	})
}

func readJSON(t *testing.T, path string, value any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
