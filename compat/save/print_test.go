package save_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// printed returns the text of tables, which Print must accept.
func printed(t rapid.TB, tables []rules.Table) string {
	t.Helper()
	var b strings.Builder
	if err := save.Print(&b, tables); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrintedTablesParseToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := richTables.Draw(t, "tables")
		text := printed(t, want)
		got, err := save.Parse(want[0].Family, "printed", strings.NewReader(text))
		if err != nil {
			t.Fatalf("Parse rejects a printed text: %v\nin:\n%s", err, text)
		}
		if diff := cmp.Diff(want, withoutLines(got), compareOptions); diff != "" {
			t.Errorf("printed:\n%s\n-drawn +parsed:\n%s", text, diff)
		}
	})
}

// TestPrintedTablesLoadToTheSame loads printed tables with iptables-legacy-restore. It verifies
// that the kernel and the output of iptables-legacy-save have the same tables.
func TestPrintedTablesLoadToTheSame(t *testing.T) {
	ns := netnstest.New(t)
	for seed := range 60 {
		want := anyTables.Example(seed)
		family := want[0].Family
		text, saved := loadPrinted(t, ns, want)
		inKernel, err := compat.ReadTables(ns)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range want {
			wantLoaded(t, table, parse(t, family, saved))
			wantLoaded(t, table, inKernel)
		}
		if t.Failed() {
			t.Fatalf("printed:\n%s\nsaved:\n%s", text, saved)
		}
	}
}

// TestPrintedMatchesLoadToTheSame is like TestPrintedTablesLoadToTheSame, with all matches and
// targets. It does not read the kernel's tables, because their decoder does not support all of
// these matches and targets.
func TestPrintedMatchesLoadToTheSame(t *testing.T) {
	ns := netnstest.New(t)
	for seed := range 60 {
		want := richTables.Example(seed)
		family := want[0].Family
		text, saved := loadPrinted(t, ns, want)
		for _, table := range want {
			wantLoaded(t, table, parse(t, family, saved))
		}
		if t.Failed() {
			t.Fatalf("printed:\n%s\nsaved:\n%s", text, saved)
		}
	}
}

// loadPrinted prints tables and loads the text with iptables-legacy-restore. It returns the printed
// text, and the output of iptables-legacy-save.
func loadPrinted(t *testing.T, ns *netns.NS, tables []rules.Table) (text, saved string) {
	t.Helper()
	family := tables[0].Family
	text = printed(t, tables)
	if _, err := istiotest.TryRun(t, ns, text, restoreProgram[family], "--counters"); err != nil {
		t.Fatalf("%s rejects a printed text: %v\nin:\n%s", restoreProgram[family], err, text)
	}
	return text, istiotest.Save(t, ns, istiotest.Legacy, family)
}

// wantLoaded verifies that the table, with its counters and comments, is among the tables.
func wantLoaded(t *testing.T, want rules.Table, among []rules.Table) {
	t.Helper()
	i := slices.IndexFunc(among, func(t rules.Table) bool {
		return t.Family == want.Family && t.Name == want.Name
	})
	if i < 0 {
		t.Errorf("no table %s, want it among the loaded tables", want.Name)
		return
	}
	got := among[i]
	if diffs := rules.Compare(rules.Ruleset{Tables: []rules.Table{want}},
		rules.Ruleset{Tables: []rules.Table{got}}); diffs != nil {
		t.Errorf("table %s differs from the printed one: %v", want.Name, diffs)
		return
	}
	for _, c := range want.Chains {
		for i, r := range c.Rules {
			if loaded := got.Chain(c.Name).Rules[i]; loaded.Comment != r.Comment ||
				loaded.Hits != r.Hits {
				t.Errorf("%s %s: comment %q and counter %v after loading, want %q and %v", c.Name,
					r.String(), loaded.Comment, loaded.Hits, r.Comment, r.Hits)
			}
		}
	}
}

// withoutLines sets the line numbers of all rules to 0 in place, and returns the tables.
func withoutLines(tables []rules.Table) []rules.Table {
	for _, t := range tables {
		for _, c := range t.Chains {
			for i := range c.Rules {
				c.Rules[i].Line = 0
			}
		}
	}
	return tables
}
