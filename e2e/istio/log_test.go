package istio_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// checkLog compares the rules in the log of the run with the output of iptables-save.
func (s testCase) checkLog(t *testing.T, run istio.Result, saved diff.Side) {
	t.Helper()
	log, err := save.ParseIstioLog("log", strings.NewReader(run.Output+run.Errors))
	if err != nil {
		t.Errorf("%s\nparse the log: %v", s, err)
		return
	}
	if log.Failure != "" || log.DryRun || log.FromInput {
		t.Errorf("%s\nlog: failure %q, dry run %t, rules of the input %t, want none of these", s,
			log.Failure, log.DryRun, log.FromInput)
	}
	r := diff.Decide(diff.Side{Ruleset: rules.Ruleset{Tables: log.Tables}}, saved, diff.Options{})
	if r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nlog and iptables-save: %s, want equivalent\n%s", s, r.StrictVerdict(),
			describe(r, "log", "iptables-save"))
	}
	if s.namesOwners() {
		return
	}
	if log.Redirect == nil {
		t.Errorf("%s\nno parameters in the log: %v", s, log.NoRedirect)
		return
	}
	fromLog := *log.Redirect
	fromLog.LoopbackCIDR = s.redirect.LoopbackCIDR // not in the log
	if got := rules.MustCompile(fromLog); !rules.Equal(got, s.sluiceRules) {
		t.Errorf("%s\nrules of the parameters in the log:\n%s\nwant the rules of the arguments:\n%s", s, got,
			s.sluiceRules)
	}
}

// namesOwners reports whether the arguments contain names of users or groups. The log contains only
// ids.
func (s testCase) namesOwners() bool {
	return slices.ContainsFunc(slices.Concat(s.Args, s.Env), func(text string) bool {
		return strings.Contains(text, "=daemon")
	})
}
