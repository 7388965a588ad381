package istio_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestWitnessesMatchTheKernel sends the witness of each finding through istio-nftables' and
// istio-iptables' rules, and checks that the kernel's outcomes are the predicted ones.
func TestWitnessesMatchTheKernel(t *testing.T) {
	program(t, istioIptables)
	for _, row := range []struct {
		finding, configuration string
		detail                 string
		class                  func(diff.Class) bool // selects a class of the finding
		proxy                  bool
		// confirm returns the outcome with each ruleset.
		confirm func(t *testing.T, w witnessPods) diff.Pair[string]
	}{
		{
			"ipv6-captured", "usual/injected/unflagged/REDIRECT", "inbound",
			enters(rules.Prerouting), true, confirmByCall,
		},
		{
			"ipv6-captured", "usual/injected/unflagged/REDIRECT", "outbound", leavesBy("eth0"),
			true, confirmByCall,
		},
		{
			"ipv6-captured", "capture-all-dns/set/unflagged/REDIRECT", "dns", capturedByNativeOnly,
			true, confirmByCall,
		},
		{
			"no-listener", "usual/injected/v4/TPROXY", "IPv4", enters(rules.Prerouting), false,
			confirmByCall,
		},
		{
			"no-listener", "usual/injected/dual/TPROXY", "IPv6",
			entersWithFamily(rules.IPv6), false, confirmByCall,
		},
		{
			"drop-invalid-tcp", "drop-invalid/set/v4/REDIRECT", "datagram",
			enters(rules.Prerouting), true, confirmByTruncation,
		},
		{
			"socketless", "usual/injected/v4/REDIRECT", "own pod", leavesBy("lo"), true,
			confirmByOrphan,
		},
	} {
		t.Run(row.finding+"/"+row.configuration+"/"+row.detail, func(t *testing.T) {
			t.Parallel()
			s := newTestCase(t, configurationNamed(t, row.configuration))
			w := witnessPods{
				native: load(t, s, byNative, row.proxy),
				legacy: load(t, s, byLegacy, row.proxy),
			}
			left := diff.Side{Ruleset: s.repaired(w.native.rules, row.finding), RoutingKnown: true}
			r := diff.Decide(left, diff.Side{Ruleset: w.legacy.rules, RoutingKnown: true},
				diff.Options{MaxClasses: 100})
			i := slices.IndexFunc(r.Classes, func(c diff.Class) bool { return row.class(c) })
			if i < 0 {
				t.Fatalf("%s\nno matching witness of %s in\n%s", s, row.finding,
					describe(r, "istio-nftables", "istio-iptables"))
			}
			w.class = r.Classes[i]
			outcome := row.confirm(t, w)
			t.Logf("%s\n%skernel, with istio-nftables: %s\nkernel, with istio-iptables: %s", s,
				describeClass(w.class, "istio-nftables", "istio-iptables"), outcome.Left,
				outcome.Right)
		})
	}
}

// Each of the following functions selects classes by a property of the witness: its hook, its
// outbound interface, or its hook and address family.

func enters(h rules.Hook) func(diff.Class) bool {
	return func(c diff.Class) bool { return c.Witness.Hook == h }
}

func leavesBy(name string) func(diff.Class) bool {
	return func(c diff.Class) bool { return c.Witness.OutInterface == name }
}

func entersWithFamily(f rules.Family) func(diff.Class) bool {
	return func(c diff.Class) bool {
		return c.Witness.Family() == f && c.Witness.Hook == rules.Prerouting
	}
}

// capturedByNativeOnly selects datagrams that only istio-nftables captures.
func capturedByNativeOnly(c diff.Class) bool {
	p := c.Witness
	onlyLeft := c.Outcome.Left.Outcome.Captured() && !c.Outcome.Right.Outcome.Captured()
	return p.Protocol == rules.UDP && p.Owner != nil && p.State == rules.New && onlyLeft
}

// witnessPods contains a class with its witness, and two pods for sending the witness: with
// istio-nftables' rules and with istio-iptables' rules.
type witnessPods struct {
	native, legacy loadedPod
	class          diff.Class
}

// loadedPod is a pod with rules of istio-iptables.
type loadedPod struct {
	*testbed.Network
	rules rules.Ruleset
}

func configurationNamed(t *testing.T, name string) istio.Configuration {
	t.Helper()
	all := matrix.Single()
	i := slices.IndexFunc(all, func(c istio.Configuration) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the matrix has no configuration %s", name)
	}
	return all[i]
}

// load creates a pod with a neighbor, runs istio-iptables in the pod, and starts an application
// and, if proxy is true, a proxy.
func load(t *testing.T, s testCase, variant string, proxy bool) loadedPod {
	t.Helper()
	netnstest.RequireIDs(t, 1337, 1337)
	b, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	result, err := program(t,
		istioIptables).Run(b.Pod, s.Configuration, slices.Concat([]string{variant}, s.Args)...)
	if err == nil && result.Status != 0 {
		err = errors.New(lastLines(result.Output+result.Errors, 8))
	}
	if err != nil {
		t.Fatalf("%s %s: %v", variant, s, err)
	}
	options := testbed.ProxyOptions{Owner: testbed.ProxyOwner}
	if s.redirect.Mode == rules.ModeTProxy {
		options.Owner, options.Transparent = testbed.TProxyOwner, true
	}
	if proxy {
		err = b.StartProxy(options)
	}
	if err := errors.Join(err, b.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	l := loadedPod{Network: b}
	if variant == byNative {
		l.rules = readLive(t, b.Pod)
	} else {
		l.rules = readSaved(t, b.Pod)
	}
	return l
}

// confirmByCall makes a connection or sends a datagram whose first packet is the witness.
func confirmByCall(t *testing.T, w witnessPods) diff.Pair[string] {
	call := callOf(w.class.Witness)
	var answers []testbed.Answer
	for _, l := range []loadedPod{w.native, w.legacy} {
		answer, err := l.Dial(call)
		if err != nil {
			t.Fatal(err)
		}
		packet := l.Packet(&l.rules, call, answer.Source)
		// Rules without tproxy do not depend on the proxy's listener, and their witness ignores it.
		dependsOnListener := slices.ContainsFunc(w.class.Packets, func(c diff.Condition) bool {
			return c.Field == "listener"
		})
		packet.NoListener = packet.NoListener && dependsOnListener
		if d := cmp.Diff(w.class.Witness, packet,
			cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); d != "" {
			t.Errorf("the packet is not the witness (-witness +packet):\n%s", d)
		}
		if predicted, trace := l.Predict(&l.rules, call, answer.Source); !answer.Agrees(predicted) {
			t.Errorf("%s: %s, predicted: %s\n%s", call, answer, predicted, trace.Outcome)
		}
		answers = append(answers, answer)
	}
	if answers[0].Agrees(answers[1]) {
		t.Errorf("%s: %s with both rulesets, want different outcomes", call, answers[0])
	}
	return diff.Pair[string]{Left: answers[0].String(), Right: answers[1].String()}
}

// callTimeout is the time limit of a call. On a busy host, a response can take longer than
// testbed's default.
const callTimeout = 5 * time.Second

// callOf returns the call whose first packet is p.
func callOf(p rules.Packet) testbed.Call {
	c := testbed.Call{
		From: testbed.FromNeighbor, Network: p.Protocol.String(), To: p.Destination,
		Local: p.Source, Mark: p.Mark, Timeout: callTimeout,
	}
	if p.Hook == rules.Output {
		c.From, c.Owner = testbed.FromPod, *p.Owner
	}
	return c
}
