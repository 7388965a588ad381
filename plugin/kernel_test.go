package plugin_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// A backend is the kernel's, but for what a test puts instead of its methods.
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

// use puts a backend instead of each backend's.
func (w *world) use(t *testing.T, b backend) {
	t.Helper()
	w.Backend = func(e compat.BackendName) (_ compat.Backend, err error) {
		b.Backend, err = compat.Choose(e)
		return b, err
	}
}

// other is what a kernel says that has not what it was given.
func other(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
	d := rules.Difference{
		Kind: rules.Missing, Where: "chain inet sluice nat-output", Want: "redirect",
	}
	return compat.Comparison{Backend: compat.BackendNFT, Differences: []rules.Difference{d}}, nil
}

// An error of the kernel fails the pod, in the kernel's words.
func TestADDThatTheKernelRejects(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	w.use(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		return compat.Result{}, errors.New(
			"add rule inet sluice nat-output: operation not supported\nload nft_redir")
	}})
	c := newCall(t, ns)
	e := w.call("ADD", c)
	if e == nil || e.Code != 102 ||
		e.Msg != "the rules of pod shop/"+podName+" cannot be installed" ||
		e.Details != "add rule inet sluice nat-output: operation not supported; load nft_redir" {
		t.Errorf("%+v", e)
	}
	c.wantNoRecord(t)
}

// Rules that are not as they were given fail the pod. New ones are removed; those of a running pod
// stay, which would pass the proxy without.
func TestADDThatIsNotVerified(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	w.use(t, backend{check: other})
	e := w.call("ADD", c)
	if e == nil || e.Code != 103 ||
		!strings.Contains(e.Details, "missing in chain inet sluice nat-output: redirect") {
		t.Errorf("%+v", e)
	}
	holdsNothing(t, ns)
	c.wantNoRecord(t)

	w.use(t, backend{})
	w.add(t, c)
	w.use(t, backend{check: other})
	if e := w.call("ADD", c); e == nil || e.Code != 103 {
		t.Errorf("%+v", e)
	}
	holds(t, ns)
}

// Where the rules are in place although the backend fails, as when old routes cannot be removed,
// they are taken back if there were none before: the pod does not start.
func TestADDThatFailsWithRulesInPlace(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	w.use(t, backend{apply: func(ns *netns.NS, rs rules.Ruleset) (compat.Result, error) {
		b, err := compat.Choose(compat.BackendNFT)
		if err != nil {
			return compat.Result{}, err
		}
		r, err := b.Apply(ns, rs, compat.Snapshot{})
		return r, errors.Join(err,
			errors.New("the rules are in place, but not all old routes are gone: busy"))
	}})
	for range 2 { // ADD is repeated
		e := w.call("ADD", c)
		if e == nil || e.Code != 102 ||
			e.Details != "the rules are in place, but not all old routes are gone: busy" {
			t.Errorf("%+v", e)
		}
		holdsNothing(t, ns)
		c.wantNoRecord(t)
	}

	// Rules that were there stay, with the record of them.
	failing := w.Backend
	w.use(t, backend{})
	w.add(t, c)
	before := c.record(t)
	w.source.pod, w.Backend = readPod(t, "tproxy"), failing
	if e := w.call("ADD", c); e == nil || e.Code != 102 {
		t.Errorf("%+v", e)
	}
	holds(t, ns)
	if diff := cmp.Diff(before, c.record(t),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

// Rules that cannot be read are not said to be others: it is not known whether they are. ADD takes
// back what it has made nevertheless.
func TestRulesThatCannotBeRead(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	unreadable := backend{check: func(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
		return compat.Comparison{}, errors.New("receive: no buffer space available")
	}}
	want := types.Error{
		Code: 103, Msg: "the rules of pod shop/" + podName + " cannot be read",
		Details: "receive: no buffer space available",
	}
	w.use(t, unreadable)
	if e := w.call("ADD", c); e == nil || *e != want {
		t.Errorf("ADD: %+v", e)
	}
	holdsNothing(t, ns)
	c.wantNoRecord(t)

	w.use(t, backend{})
	w.add(t, c)
	w.use(t, unreadable)
	if e := w.call("CHECK", c); e == nil || *e != want {
		t.Errorf("CHECK: %+v", e)
	}
	holds(t, ns)
}

// A backend that cannot be used is not asked for in vain: auto takes the other, and the record says
// which.
func TestADDByLegacy(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	c.stdin = c.with(`"backend":"legacy"`)
	w.add(t, c)
	if r := c.record(t); r.Backend != compat.BackendLegacy {
		t.Errorf("record: %+v", r)
	}
	c.stdin = c.with(`"backend":"nft"`) // by now: CHECK looks where the rules are
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %v", e)
	}
}

// A defect is an error for the runtime, with the place of the panic, also of one that happens
// inside of a namespace. It is logged and counted as any other error.
func TestPanics(t *testing.T) {
	for name, panics := range map[string]func(ns *netns.NS) error{
		"here": func(*netns.NS) error { panic("impossible\nvalue") },
		"in the namespace": func(ns *netns.NS) error {
			return ns.Do(func() error { panic("impossible\nvalue") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			w.use(t, backend{apply: func(ns *netns.NS, _ rules.Ruleset) (compat.Result, error) {
				return compat.Result{}, panics(ns)
			}})
			e := w.call("ADD", newCall(t, ns))
			if e == nil || e.Code != 999 || e.Msg != "a defect of the plugin: impossible value" ||
				!strings.Contains(e.Details, "kernel_test.go:") {
				t.Errorf("%+v", e)
			}
			if w.stdout.Len() > 0 || !strings.Contains(w.stderr.String(), "goroutine ") {
				t.Errorf("standard output %q, standard error %q", w.stdout.String(),
					w.stderr.String())
			}
			if reported := w.agent.last(t); reported.Result != "error" ||
				reported.Decision != "redirect" || reported.Name != podName {
				t.Errorf("reported %+v", reported)
			}
			if lines := w.agent.lines; len(lines) != 1 ||
				!strings.Contains(lines[0], `"error":"a defect of the plugin: impossible value"`) ||
				!strings.Contains(lines[0], `"pod":"`+podName+`"`) {
				t.Errorf("logged %q", lines)
			}
		})
	}
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	w.use(t, backend{check: func(*netns.NS, rules.Ruleset) (compat.Comparison, error) {
		panic("impossible")
	}})
	c := newCall(t, ns)
	if e := w.call("ADD", c); e == nil || e.Code != 999 {
		t.Errorf("a defect after the rules are there: %+v", e)
	}
	holdsNothing(t, ns)
	c.wantNoRecord(t)

	w, ns = newWorld(t, ""), netnstest.New(t)
	w.Backend = func(compat.BackendName) (compat.Backend, error) { panic("impossible") }
	if e := w.call("DEL", newCall(t, ns)); e != nil {
		t.Errorf("DEL with a defect: %+v", e)
	}
	if !strings.Contains(w.stderr.String(), "impossible") {
		t.Errorf("log: %s", w.stderr.String())
	}
}
