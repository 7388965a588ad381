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

// backendRecorder is a backend that records the desired rulesets and their namespaces.
type backendRecorder struct {
	compat.Backend
	entered  []netns.ID
	rulesets []rules.Ruleset
}

func (b *backendRecorder) Name() compat.BackendName { return compat.BackendNFT }

func (b *backendRecorder) Apply(ns *netns.NS, rs rules.Ruleset, _ compat.Snapshot) (compat.Result, error) {
	b.entered, b.rulesets = append(b.entered, ns.ID()), append(b.rulesets, rs)
	return compat.Result{Result: nft.Result{Outcome: nft.Created}, Backend: compat.BackendNFT}, nil
}

func (b *backendRecorder) Check(
	ns *netns.NS, rs rules.Ruleset, _ compat.Snapshot,
) (compat.Comparison, error) {
	b.entered, b.rulesets = append(b.entered, ns.ID()), append(b.rulesets, rs)
	return compat.Comparison{}, nil
}

// wordsOfRules returns the string literals in the source of package rules: the texts that its
// compiler itself can write into rules.
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

// checkWords fails the test unless all comments and names in the rules are Sluice's, or harmless
// interface names.
func checkWords(t testing.TB, rs rules.Ruleset, allowed map[string]bool) {
	t.Helper()
	checkWord := func(description, word string) {
		if !allowed[word] {
			t.Errorf("%s %q is not one of Sluice's", description, word)
		}
	}
	for _, table := range rs.Tables {
		checkWord("table", table.Name)
		checkWord("the table's comment", table.Comment)
		for _, chain := range table.Chains {
			checkWord("chain", chain.Name)
			for _, rule := range chain.Rules {
				checkWord("comment", rule.Comment)
				checkWordsOfRule(t, rule, checkWord)
			}
		}
	}
}

// checkWordsOfRule calls checkWord for the names in a rule.
func checkWordsOfRule(t testing.TB, rule rules.Rule, checkWord func(description, word string)) {
	t.Helper()
	for _, action := range rule.Actions {
		switch a := action.(type) {
		case rules.Jump:
			checkWord("chain", a.Chain)
		case rules.Unknown:
			t.Errorf("unknown action %q", a.Text)
		}
	}
	for _, match := range rule.Matches {
		switch m := match.(type) {
		case rules.MatchAddr:
			if m.Set != "" {
				checkWord("set", m.Set)
			}
		case rules.MatchInterface:
			for _, n := range m.Names {
				checkInterface(t, n.Name)
			}
		case rules.Unknown:
			t.Errorf("unknown match %q", m.Text)
		}
	}
}

// checkInterface fails the test if the name contains characters with a special meaning, for example
// in the text of a ruleset.
func checkInterface(t testing.TB, name string) {
	t.Helper()
	if !harmlessName.MatchString(name) {
		t.Errorf("interface name %q has characters that may have a special meaning", name)
	}
}

var harmlessName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,14}$`)
