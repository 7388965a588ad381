package chaintest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// witness is a backend that remembers what it was to do, and in which namespaces.
type witness struct {
	compat.Backend
	entered  []netns.ID
	rulesets []rules.Ruleset
}

func (w *witness) Name() compat.BackendName { return compat.BackendNFT }

func (w *witness) Apply(ns *netns.NS, rs rules.Ruleset, _ compat.Snapshot) (compat.Result, error) {
	w.entered, w.rulesets = append(w.entered, ns.ID()), append(w.rulesets, rs)
	return compat.Result{Result: nft.Result{Outcome: nft.Created}, Backend: compat.BackendNFT}, nil
}

func (w *witness) Check(
	ns *netns.NS, rs rules.Ruleset, _ compat.Snapshot,
) (compat.Comparison, error) {
	w.entered, w.rulesets = append(w.entered, ns.ID()), append(w.rulesets, rs)
	return compat.Comparison{}, nil
}

// wordsOfRules are the texts in the source of package rules: what its compiler can write into rules
// on its own.
func wordsOfRules(t testing.TB) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../rules/*.go")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if word, err := strconv.Unquote(literal.Value); err == nil {
					words[word] = true
				}
			}
			return true
		})
	}
	return words
}

// wantOurWords fails the test unless all comments and names in the rules are ours, and those of
// interfaces are harmless.
func wantOurWords(t testing.TB, rs rules.Ruleset, ours map[string]bool) {
	t.Helper()
	want := func(what, word string) {
		if !ours[word] {
			t.Errorf("%s %q is not ours", what, word)
		}
	}
	for _, table := range rs.Tables {
		want("table", table.Name)
		want("the table's comment", table.Comment)
		for _, chain := range table.Chains {
			want("chain", chain.Name)
			for _, rule := range chain.Rules {
				want("comment", rule.Comment)
				wantOurWordsInRule(t, rule, want)
			}
		}
	}
}

func wantOurWordsInRule(t testing.TB, rule rules.Rule, want func(what, word string)) {
	t.Helper()
	for _, action := range rule.Actions {
		switch a := action.(type) {
		case rules.Jump:
			want("chain", a.Chain)
		case rules.Unknown:
			t.Errorf("action %q", a.Text)
		}
	}
	for _, match := range rule.Matches {
		switch m := match.(type) {
		case rules.MatchAddr:
			if m.Set != "" {
				want("set", m.Set)
			}
		case rules.MatchInterface:
			for _, n := range m.Names {
				wantInterface(t, n.Name)
			}
		case rules.Unknown:
			t.Errorf("match %q", m.Text)
		}
	}
}

// wantInterface fails the test unless the name has nothing in it that means something elsewhere,
// such as in a ruleset as text.
func wantInterface(t testing.TB, name string) {
	t.Helper()
	if !harmless.MatchString(name) {
		t.Errorf("interface %q", name)
	}
}

var harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,14}$`)
