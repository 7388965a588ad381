package save_test

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// goldenRuns returns the directories of recorded runs of istio-iptables. The repository does not
// contain the recordings.
func goldenRuns(t testing.TB) []string {
	dir := cmp.Or(os.Getenv("SLUICE_GOLDEN"), filepath.Join("..", "..", "..", "shared", "golden"))
	runs, err := filepath.Glob(filepath.Join(dir, "*", "legacy-v4.save"))
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) == 0 {
		t.Skipf("no recorded runs of istio-iptables in %s: set SLUICE_GOLDEN to their directory", dir)
	}
	for i := range runs {
		runs[i] = filepath.Dir(runs[i])
	}
	return runs
}

// savedTables returns the tables after a run, from the recorded output of iptables-save and
// ip6tables-save. variant is the recorded variant of iptables.
func savedTables(t testing.TB, run, variant string) []rules.Table {
	t.Helper()
	var tables []rules.Table
	for family, name := range map[rules.Family]string{
		rules.IPv4: variant + "-v4.save", rules.IPv6: variant + "-v6.save",
	} {
		data, err := os.ReadFile(filepath.Join(run, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			continue // the run failed before it created a table
		}
		tables = append(tables, parse(t, family, string(data))...)
	}
	return tables
}

// onlyRules returns the tables as a ruleset, without chains and tables that have no rules.
func onlyRules(tables []rules.Table) rules.Ruleset {
	var filled rules.Ruleset
	for _, table := range tables {
		table.Chains = slices.DeleteFunc(slices.Clone(table.Chains), func(c rules.Chain) bool {
			return len(c.Rules) == 0
		})
		if len(table.Chains) > 0 {
			filled.Tables = append(filled.Tables, table)
		}
	}
	return filled
}

// wantSame verifies that two rulesets have the same rules in the same chains.
func wantSame(t *testing.T, description string, want, got rules.Ruleset) {
	t.Helper()
	for _, d := range rules.Compare(want, got) {
		t.Errorf("%s: %s", description, d)
	}
}

// In each recorded run, both variants of iptables saved the same rules, and the logs contain the
// same rules. No match or action is unknown.
func TestParseRecordedRuns(t *testing.T) {
	for _, run := range goldenRuns(t) {
		t.Run(filepath.Base(run), func(t *testing.T) {
			want := onlyRules(savedTables(t, run, "legacy"))
			if text := want.String(); strings.Contains(text, "unknown(") {
				t.Errorf("want no unknown matches or actions in\n%s", text)
			}
			wantSame(t, "iptables-nft", want, onlyRules(savedTables(t, run, "iptnft")))
			for _, name := range []string{"log-legacy.txt", "log-iptnft.txt"} {
				text := recorded(t, run, name)
				if !strings.Contains(text, "Final iptables state") {
					// the run was rejected before it added rules, or its log was not recorded
					continue
				}
				wantSame(t, name, want, onlyRules(parseLog(t, text).Tables))
			}
		})
	}
}

// The log of a dry run contains the rules that the real run then added. The test skips runs that
// failed, found rules of an earlier run, or looked up names.
func TestParseRecordedDryRuns(t *testing.T) {
	for _, run := range goldenRuns(t) {
		t.Run(filepath.Base(run), func(t *testing.T) {
			var results map[string][2]any
			if err := json.Unmarshal([]byte(recorded(t, run, "rc.json")), &results); err != nil {
				t.Fatal(err)
			}
			l, err := save.ParseIstioLog("dryrun.txt",
				strings.NewReader(recorded(t, run, "dryrun.txt")))
			if exitCode := results["legacy"][0]; exitCode != 0.0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := onlyRules(l.Tables)
			args := recorded(t, run, "args.json")
			if strings.Contains(args, `"_pre`) ||
				strings.Contains(got.String(), "unknown(") && strings.Contains(args, "daemon") {
				return
			}
			wantSame(t, "dryrun.txt", onlyRules(savedTables(t, run, "legacy")), got)
			if l.Redirect == nil && !strings.Contains(args, "cleanup-only") {
				t.Errorf("the parameters of the log are not usable: %v", l.NoRedirect)
			}
		})
	}
}

// recorded returns a file of a run, or an empty string if it was not recorded.
func recorded(t *testing.T, run, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(run, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}
