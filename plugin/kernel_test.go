package plugin_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// A backend is the kernel's backend, except for the methods that a test replaces.
type backend struct {
	compat.Backend
	apply func(*netns.NS, rules.Ruleset) (compat.Result, error)
	check func(*netns.NS, rules.Ruleset) (compat.Comparison, error)
}

func (b backend) Apply(
	ns *netns.NS, rs rules.Ruleset, since compat.Snapshot,
) (compat.Result, error) {
	if b.apply != nil {
		return b.apply(ns, rs)
	}
	return b.Backend.Apply(ns, rs, since)
}

func (b backend) Check(
	ns *netns.NS, rs rules.Ruleset, since compat.Snapshot,
) (compat.Comparison, error) {
	if b.check != nil {
		return b.check(ns, rs)
	}
	return b.Backend.Check(ns, rs, since)
}

// useBackend makes the plugin use b, whatever backend it requests. For methods that the test does
// not replace, b calls the requested backend.
func (env *testEnv) useBackend(t *testing.T, b backend) {
	t.Helper()
	env.Backend = func(name compat.BackendName) (_ compat.Backend, err error) {
		b.Backend, err = compat.Choose(name)
		return b, err
	}
}

// reportDifference returns the comparison with a kernel whose ruleset differs.
func reportDifference(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
	d := rules.Difference{
		Kind: rules.Missing, Where: "chain inet sluice nat-output", Want: "redirect",
	}
	return compat.Comparison{Backend: compat.BackendNFT, Differences: []rules.Difference{d}}, nil
}

// TestADDFailsWithTheErrorOfTheKernel checks that ADD fails with the error of the kernel in its
// details.
func TestADDFailsWithTheErrorOfTheKernel(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	env.useBackend(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		return compat.Result{}, errors.New(
			"add rule inet sluice nat-output: operation not supported\nload nft_redir")
	}})
	c := newCall(t, ns)
	e := env.call("ADD", c)
	if e == nil || e.Code != 102 ||
		e.Msg != "the rules of pod shop/"+podName+" cannot be installed" ||
		e.Details != "add rule inet sluice nat-output: operation not supported; load nft_redir" {
		t.Errorf("ADD: %+v, want code 102 and the error of the kernel", e)
	}
	c.checkNoRecord(t)
}

// TestADDFailsIfTheRulesDiffer checks that ADD fails if the rules in the kernel differ from the
// applied ones. New rules are removed. The rules of a running pod remain, because without them its
// traffic would bypass the proxy.
func TestADDFailsIfTheRulesDiffer(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.useBackend(t, backend{check: reportDifference})
	e := env.call("ADD", c)
	if e == nil || e.Code != 103 ||
		!strings.Contains(e.Details, "missing in chain inet sluice nat-output: redirect") {
		t.Errorf("ADD: %+v, want code 103 and the difference", e)
	}
	checkNoRules(t, ns)
	c.checkNoRecord(t)

	env.useBackend(t, backend{})
	env.add(t, c)
	env.useBackend(t, backend{check: reportDifference})
	if e := env.call("ADD", c); e == nil || e.Code != 103 {
		t.Errorf("ADD of a running pod: %+v, want code 103", e)
	}
	checkHasRules(t, ns)
}

// TestFailedADDRemovesItsRules covers a backend that fails after installing the rules, for
// example because old routes cannot be removed. The rules are removed if there were none before:
// the pod does not start.
func TestFailedADDRemovesItsRules(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.useBackend(t, backend{apply: func(ns *netns.NS, rs rules.Ruleset) (compat.Result, error) {
		b, err := compat.Choose(compat.BackendNFT)
		if err != nil {
			return compat.Result{}, err
		}
		r, err := b.Apply(ns, rs, compat.Snapshot{})
		return r, errors.Join(err,
			errors.New("the rules are in place, but not all old routes are gone: busy"))
	}})
	for range 2 { // the runtime repeats a failed ADD
		e := env.call("ADD", c)
		if e == nil || e.Code != 102 ||
			e.Details != "the rules are in place, but not all old routes are gone: busy" {
			t.Errorf("ADD: %+v, want code 102 and the error of the backend", e)
		}
		checkNoRules(t, ns)
		c.checkNoRecord(t)
	}

	// Existing rules and their record stay.
	failing := env.Backend
	env.useBackend(t, backend{})
	env.add(t, c)
	before := c.record(t)
	env.source.pod, env.Backend = readPod(t, "tproxy"), failing
	if e := env.call("ADD", c); e == nil || e.Code != 102 {
		t.Errorf("ADD of a running pod: %+v, want code 102", e)
	}
	checkHasRules(t, ns)
	if diff := cmp.Diff(before, c.record(t),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
}

// TestUnreadableRulesAreNotReportedAsDifferent checks that the errors of ADD and CHECK do not claim
// a difference if the rules cannot be read. ADD removes its rules nevertheless.
func TestUnreadableRulesAreNotReportedAsDifferent(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	unreadable := backend{check: func(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
		return compat.Comparison{}, errors.New("receive: no buffer space available")
	}}
	want := verbError{
		Code: 103, Msg: "the rules of pod shop/" + podName + " cannot be read",
		Details: "receive: no buffer space available",
	}
	env.useBackend(t, unreadable)
	if e := env.call("ADD", c); e == nil || *e != want {
		t.Errorf("ADD: %v, want %v", e, &want)
	}
	checkNoRules(t, ns)
	c.checkNoRecord(t)

	env.useBackend(t, backend{})
	env.add(t, c)
	env.useBackend(t, unreadable)
	if e := env.call("CHECK", c); e == nil || *e != want {
		t.Errorf("CHECK: %v, want %v", e, &want)
	}
	checkHasRules(t, ns)
}

// TestADDRedirectsDespiteATooLargeLegacyTable checks that ADD redirects a pod by nftables if a
// table of iptables-legacy exceeds the limit, and logs it. CHECK reports that the rules are
// unknown.
func TestADDRedirectsDespiteATooLargeLegacyTable(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	istiotest.RestoreLargeTable(t, ns, "nat")
	c := newCall(t, ns)
	env.add(t, c)
	if found, err := nft.Read(ns); err != nil || len(found.Tables) == 0 {
		t.Errorf("rules %v, error %v; want rules", found, err)
	}
	const want = "the tables exceed the limit of 32 MiB"
	lines := env.logLines(t)
	if line := lines[len(lines)-1]; !strings.Contains(fmt.Sprint(line["legacy_error"]), want) {
		t.Errorf("log: %v, want a legacy_error: %s", line, want)
	}
	if e := env.call("CHECK", c); e == nil || e.Code != 103 || !strings.Contains(e.Details, want) {
		t.Errorf("CHECK: %v, want code 103: %s", e, want)
	}
}

// TestCHECKUsesTheBackendOfTheRecord checks that the record contains the backend that ADD used, and
// that CHECK uses the backend of the record.
func TestCHECKUsesTheBackendOfTheRecord(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	c.stdin = c.configuration(`"backend":"legacy"`)
	env.add(t, c)
	if r := c.record(t); r.Backend != compat.BackendLegacy {
		t.Errorf("record: %+v, want the backend legacy", r)
	}
	c.stdin = c.configuration(`"backend":"nft"`)
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %v", e)
	}
}

// TestPanicsBecomeErrors checks that a panic becomes an error that contains the location of the
// panic, and that this error is logged and reported like any other.
func TestPanicsBecomeErrors(t *testing.T) {
	for name, panics := range map[string]func(ns *netns.NS) error{
		"a panic in the plugin's namespace": func(*netns.NS) error { panic("impossible\nvalue") },
		"a panic in the pod's namespace": func(ns *netns.NS) error {
			return ns.Do(func() error { panic("impossible\nvalue") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			env.useBackend(t, backend{apply: func(ns *netns.NS, _ rules.Ruleset) (compat.Result, error) {
				return compat.Result{}, panics(ns)
			}})
			e := env.call("ADD", newCall(t, ns))
			if e == nil || e.Code != 999 || e.Msg != "a defect of the plugin: impossible value" ||
				!strings.Contains(e.Details, "kernel_test.go:") {
				t.Errorf("ADD: %+v, want code 999, the value and the location of the panic", e)
			}
			if env.stdout.Len() > 0 || !strings.Contains(env.stderr.String(), "goroutine ") {
				t.Errorf("standard output %q, standard error %q; want no output, and a stack trace",
					env.stdout.String(), env.stderr.String())
			}
			if reported := env.agent.last(t); reported.Result != "error" ||
				reported.Decision != "redirect" || reported.Name != podName {
				t.Errorf("report: %+v, want the error of a pod that is redirected", reported)
			}
			if lines := env.agent.lines; len(lines) != 1 ||
				!strings.Contains(lines[0], `"error":"a defect of the plugin: impossible value"`) ||
				!strings.Contains(lines[0], `"pod":"`+podName+`"`) {
				t.Errorf("log lines: %q, want one with the panic and the pod", lines)
			}
		})
	}
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	env.useBackend(t, backend{check: func(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
		panic("impossible")
	}})
	c := newCall(t, ns)
	if e := env.call("ADD", c); e == nil || e.Code != 999 {
		t.Errorf("a panic after the installation of the rules: %+v, want code 999", e)
	}
	checkNoRules(t, ns)
	c.checkNoRecord(t)

	env, ns = newTestEnv(t, ""), netnstest.New(t)
	env.Backend = func(compat.BackendName) (compat.Backend, error) { panic("impossible") }
	if e := env.call("DEL", newCall(t, ns)); e != nil {
		t.Errorf("DEL that panics: %+v, want success", e)
	}
	if !strings.Contains(env.stderr.String(), "impossible") {
		t.Errorf("the log does not contain the panic: %s", env.stderr.String())
	}
}
