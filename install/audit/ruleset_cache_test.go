package audit

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestRulesetsAreCompiledOnce requests as many different rulesets as the cache holds, several
// times. Equal parameters share a ruleset, even if they have different addresses in memory.
func TestRulesetsAreCompiledOnce(t *testing.T) {
	var c rulesetCache
	redirectTo := func(port uint16) redirection {
		r := rules.DefaultRedirect()
		r.OutboundExcludePorts = rules.Singles(port)
		return redirection{redirect: &r}
	}
	ambient := rules.DefaultAmbient()
	all := map[string]func() redirection{
		"ambient": func() redirection { return redirection{ambient: &ambient} },
	}
	for i := range cachedRulesets - 1 {
		all[fmt.Sprint("port ", i+1)] = func() redirection { return redirectTo(uint16(i + 1)) }
	}
	first := map[string]rules.Ruleset{}
	for round := range 3 {
		for name, r := range all {
			got, err := c.ruleset(r())
			if err != nil {
				t.Fatal(err)
			}
			if want, err := r().compile(); err != nil || !rules.Equal(want, got) {
				t.Fatalf("%s: error %v, ruleset %s, want %s", name, err, got, want)
			}
			if round == 0 {
				first[name] = got
			} else if &got.Tables[0] != &first[name].Tables[0] {
				t.Errorf("%s: compiled again", name)
			}
		}
	}
	for i := range 10 * cachedRulesets {
		if _, err := c.ruleset(redirectTo(uint16(100 + i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.last); n != cachedRulesets {
		t.Errorf("the cache contains %d rulesets, want %d", n, cachedRulesets)
	}
	invalid := rules.DefaultRedirect()
	invalid.Mode = "unknown"
	if _, err := c.ruleset(redirection{redirect: &invalid}); err == nil {
		t.Error("ruleset of invalid parameters: no error, want one")
	}
}
