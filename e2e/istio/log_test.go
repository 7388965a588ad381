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

// checkLog compares the rules in the log of the run with the output of iptables-save after it.
func (s subject) checkLog(t *testing.T, run istio.Result, saved diff.Side) {
	t.Helper()
	log, err := save.ParseIstioLog("log", strings.NewReader(run.Output+run.Errors))
	if err != nil {
		t.Errorf("%s\nits log: %v", s, err)
		return
	}
	if log.Failure != "" || log.DryRun || log.FromInput {
		t.Errorf("%s\nits log: failure %q, dry run %t, rules of the input %t, want none of them", s,
			log.Failure, log.DryRun, log.FromInput)
	}
	r := diff.Decide(diff.Side{Ruleset: rules.Ruleset{Tables: log.Tables}}, saved, diff.Options{})
	if r.Verdict(true) != diff.Equivalent {
		t.Errorf("%s\nits log and iptables-save: %s\n%s", s, r.Verdict(true),
			describe(r, "log", "iptables-save"))
	}
	if s.namesOwners() {
		return
	}
	if log.Redirect == nil {
		t.Errorf("%s\nits log does not tell the parameters: %v", s, log.NoRedirect)
		return
	}
	told := *log.Redirect
	told.LoopbackCIDR = s.redirect.LoopbackCIDR // not in the log
	if got := rules.MustCompile(told); !rules.Equal(got, s.ours) {
		t.Errorf("%s\nthe parameters that its log tells mean\n%s\nand its arguments\n%s", s, got,
			s.ours)
	}
}

// namesOwners reports whether users or groups are given by name; the log contains only their ids.
func (s subject) namesOwners() bool {
	return slices.ContainsFunc(slices.Concat(s.Args, s.Env), func(text string) bool {
		return strings.Contains(text, "=daemon")
	})
}
