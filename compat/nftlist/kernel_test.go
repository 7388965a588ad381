package nftlist_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A namespace is a network namespace whose rules are listed.
type namespace struct {
	*netns.NS
	nft string
}

func newNamespace(t *testing.T) namespace {
	return namespace{nft: netnstest.RequireBinary(t, "nft"), NS: netnstest.New(t)}
}

// run runs a program in the namespace and returns its standard output.
func (ns namespace) run(t *testing.T, stdin string, command ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := ns.Do(cmd.Run)
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, &errs)
	}
	return out.String(), err
}

// load replaces the rules of the namespace.
func (ns namespace) load(t *testing.T, text string) {
	t.Helper()
	if _, err := ns.run(t, "flush ruleset\n"+text, ns.nft, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// The forms of a listing, each as the flags of nft that select the form.
var (
	everyForm = [][]string{{}, {"-j"}, {"-a"}, {"-s"}, {"-n"}}
	mainForms = [][]string{{}, {"-j"}, {"-n"}}
)

// compare compares listings in the given forms with the rules of the kernel, and returns the
// verdicts by form. The test fails if a verdict is "different".
func (ns namespace) compare(t *testing.T, forms ...[]string) map[string]diff.Verdict {
	t.Helper()
	inKernel, err := nft.ReadAll(ns.NS)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]diff.Verdict{}
	for _, form := range forms {
		name := strings.Join(form, " ")
		text, err := ns.run(t, "", append(append([]string{ns.nft}, form...), "list", "ruleset")...)
		if err != nil {
			t.Fatal(err)
		}
		listing, err := nftlist.Parse("listing", strings.NewReader(text))
		if err != nil {
			t.Errorf("nft %s: %v\n%s", name, err, text)
			continue
		}
		listed := rules.Ruleset{Tables: listing.Tables}
		result := diff.Decide(diff.Side{Ruleset: inKernel}, diff.Side{Ruleset: listed}, diff.Options{
			Families: []rules.Family{rules.IPv4, rules.IPv6}, Budget: diff.DefaultBudget,
		})
		verdict := result.StrictVerdict()
		if len(listing.Undecided) > 0 {
			verdict = diff.Undecidable
		}
		if verdict == diff.Different {
			t.Errorf("nft %s: different; the kernel has\n%sand the listing is\n%s\n%s", name, inKernel,
				listed, text)
		}
		verdicts[name] = verdict
	}
	return verdicts
}

// TestListingsOfPrograms verifies that listings of the rules of programs equal the rules of the
// kernel.
func TestListingsOfPrograms(t *testing.T) {
	ns := newNamespace(t)
	files, err := filepath.Glob("../../nft/testdata/*.nft")
	if err != nil || len(files) < 2 {
		t.Fatalf("rulesets %v, error %v; want at least 2", files, err)
	}
	lists, err := filepath.Glob("../../nft/testdata/list-*.golden")
	if err != nil || len(lists) < 8 {
		t.Fatalf("listings %v, error %v; want at least 8", lists, err)
	}
	files = append(append(files, lists...), "../../nft/istio/istiotest/testdata/nft.txt")
	programs, err := filepath.Glob("../../nft/testdata/programs/*.nft")
	if err != nil || len(programs) < 3 {
		t.Fatalf("rulesets of programs %v, error %v; want at least 3", programs, err)
	}
	for _, path := range rulestest.Sample(append(files, programs...), os.Getenv) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			ns.load(t, string(text))
			for form, verdict := range ns.compare(t, everyForm...) {
				if verdict != diff.Equivalent {
					t.Errorf("nft %s: %v, want equivalent", form, verdict)
				}
			}
		})
	}
}

// TestListingsOfGeneratedRulesets verifies that no listing of a generated ruleset is read as
// another ruleset, and that text is equivalent to the rules as often as JSON. The text of rules of
// iptables-nft is never equivalent, because nft prints these rules incompletely.
func TestListingsOfGeneratedRulesets(t *testing.T) {
	ns := newNamespace(t)
	netnstest.RequireBinary(t, "iptables-nft-restore")
	for _, program := range []kerneltest.Program{kerneltest.NFT, kerneltest.IPTablesNFT} {
		t.Run(string(program), func(t *testing.T) {
			equivalent, count := map[string]int{}, 0
			for seed := range uint64(rulesetCount(t)) {
				g := kerneltest.NewGenerator(seed)
				g.OmitUnmodeled = seed%2 == 0
				rs := firstRules(g.RulesetOf(program))
				ns.load(t, "")
				if err := ns.loadGenerated(t, rs.String()); err != nil {
					continue // programs reject some rulesets
				}
				count++
				for form, verdict := range ns.compare(t, mainForms...) {
					if verdict == diff.Equivalent {
						equivalent[form]++
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d of\n%s", seed, rs)
				}
			}
			t.Logf("%d rulesets, equivalent listings by form: %v", count, equivalent)
			want := equivalent["-j"]
			if program == kerneltest.IPTablesNFT {
				want = 0
			}
			if count == 0 || equivalent[""] != want || equivalent["-n"] != want {
				t.Errorf("%d rulesets, equivalent listings by form: %v, want %d for each text form",
					count, equivalent, want)
			}
		})
	}
}

// usesUnknown reports whether the rule has an unsupported part, or looks up a list that is not part
// of the rules.
func usesUnknown(r rules.Rule) bool {
	unknown := func(m rules.Match) bool {
		switch m := m.(type) {
		case rules.Unknown, rules.MatchListed:
			return true
		case rules.MatchTuple:
			return m.UsesUnknown()
		}
		return false
	}
	return slices.ContainsFunc(r.Matches, unknown) ||
		slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
			if q, ok := a.(rules.Require); ok {
				return unknown(q.Match)
			}
			_, ok := a.(rules.Unknown)
			return ok
		})
}

// TestGeneratedRulesAreReadExactly verifies that a listed chain of generated nft rules is either
// read exactly or has a rule with an unsupported part, and that most chains are read exactly.
func TestGeneratedRulesAreReadExactly(t *testing.T) {
	ns := newNamespace(t)
	total, exact := 0, 0
	for seed := range uint64(rulesetCount(t)) {
		g := kerneltest.NewGenerator(1000 + seed)
		g.OmitUnmodeled = seed%2 == 0
		rs := g.RulesetOf(kerneltest.NFT)
		ns.load(t, "")
		if err := ns.loadGenerated(t, rs.String()); err != nil {
			continue // nft rejects some rulesets
		}
		ns.eachChain(t, mainForms, func(form string, want, got *rules.Chain) {
			total++
			diff := differenceOf(want, got)
			if diff == "" {
				exact++
				return
			}
			if !slices.ContainsFunc(got.Rules, usesUnknown) {
				t.Errorf("seed %d, %s, chain %s: %s", seed, form, want.Name, diff)
			}
		})
	}
	t.Logf("%d of %d listed chains are read exactly", exact, total)
	if exact < total*9/10 || total == 0 {
		t.Errorf("%d of %d listed chains are read exactly, want at least 90%%", exact, total)
	}
}

// firstRules removes all rules except the first one of each chain, so that fewer rulesets contain
// unsupported rules. It changes rs, and returns it.
func firstRules(rs kerneltest.Ruleset) kerneltest.Ruleset {
	for i := range rs {
		for j := range rs[i].Chains {
			c := &rs[i].Chains[j]
			c.Rules = c.Rules[:min(1, len(c.Rules))]
		}
	}
	return rs
}

// loadGenerated runs the programs of a generated ruleset. Each program's input follows a comment
// with the command.
func (ns namespace) loadGenerated(t *testing.T, text string) error {
	t.Helper()
	for part := range strings.SplitSeq("\n"+text, "\n# ") {
		command, input, _ := strings.Cut(part, "\n")
		if command == "" {
			continue
		}
		if _, err := ns.run(t, input, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// rulesetCount returns the number of rulesets that a test generates.
func rulesetCount(t *testing.T) int {
	t.Helper()
	if os.Getenv("SLUICE_LONG") == "1" {
		return 300
	}
	return 15
}
