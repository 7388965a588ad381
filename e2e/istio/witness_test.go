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

// TestWitnessesAreReal sends the witness of each finding through the rules of the real
// istio-nftables and of istio-iptables, and checks that both outcomes are those of the decision.
func TestWitnessesAreReal(t *testing.T) {
	program(t, istioIptables)
	for _, row := range []struct {
		finding, configuration string
		which                  string
		class                  func(diff.Class) bool // selects among the finding's classes
		proxy                  bool
		// returns the outcome with each ruleset
		confirm func(t *testing.T, w witnessed) diff.Pair[string]
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
			"ipv6-captured", "capture-all-dns/set/unflagged/REDIRECT", "dns", queries, true,
			confirmByCall,
		},
		{
			"no-listener", "usual/injected/v4/TPROXY", "IPv4", enters(rules.Prerouting), false,
			confirmByCall,
		},
		{
			"no-listener", "usual/injected/dual/TPROXY", "IPv6", ofFamily(rules.IPv6), false,
			confirmByCall,
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
		t.Run(row.finding+"/"+row.configuration+"/"+row.which, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, configurationNamed(t, row.configuration))
			w := witnessed{
				native: load(t, s, byNative, row.proxy),
				legacy: load(t, s, byLegacy, row.proxy),
			}
			left := diff.Side{Ruleset: s.repaired(w.native.rules, row.finding), RoutingKnown: true}
			r := diff.Decide(left, diff.Side{Ruleset: w.legacy.rules, RoutingKnown: true},
				diff.Options{MaxClasses: 100})
			i := slices.IndexFunc(r.Classes, func(c diff.Class) bool { return row.class(c) })
			if i < 0 {
				t.Fatalf("%s\nno such witness of %s among\n%s", s, row.finding,
					describe(r, "istio-nftables", "istio-iptables"))
			}
			w.class = r.Classes[i]
			became := row.confirm(t, w)
			t.Logf("%s\n%sin truth, with istio-nftables: %s\nin truth, with istio-iptables: %s", s,
				describeClass(w.class, "istio-nftables", "istio-iptables"), became.Left,
				became.Right)
		})
	}
}

// The following functions select classes.

func enters(h rules.Hook) func(diff.Class) bool {
	return func(c diff.Class) bool { return c.Witness.Hook == h }
}

func leavesBy(name string) func(diff.Class) bool {
	return func(c diff.Class) bool { return c.Witness.OutInterface == name }
}

func ofFamily(f rules.Family) func(diff.Class) bool {
	return func(c diff.Class) bool {
		return c.Witness.Family() == f && c.Witness.Hook == rules.Prerouting
	}
}

// queries selects datagrams that only one side captures.
func queries(c diff.Class) bool {
	p := c.Witness
	onlyLeft := c.Outcome.Left.Outcome.Captured() && !c.Outcome.Right.Outcome.Captured()
	return p.Protocol == rules.UDP && p.Owner != nil && p.State == rules.New && onlyLeft
}

// witnessed is a witness, and the two pods in which it is sent.
type witnessed struct {
	native, legacy loaded
	class          diff.Class
}

// loaded is a pod with the rules of istio-iptables.
type loaded struct {
	*testbed.Network
	rules rules.Ruleset
}

func configurationNamed(t *testing.T, name string) istio.Configuration {
	t.Helper()
	all := matrix.Alone()
	i := slices.IndexFunc(all, func(c istio.Configuration) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the matrix has no configuration %s", name)
	}
	return all[i]
}

// load creates a pod with a neighbour and runs istio-iptables in it.
func load(t *testing.T, s subject, engine string, proxy bool) loaded {
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
		istioIptables).Run(b.Pod, s.Configuration, slices.Concat([]string{engine}, s.Args)...)
	if err == nil && result.Status != 0 {
		err = errors.New(lastLines(result.Output+result.Errors, 8))
	}
	if err != nil {
		t.Fatalf("%s %s: %v", engine, s, err)
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
	l := loaded{Network: b}
	if engine == byNative {
		l.rules = readLive(t, b.Pod)
	} else {
		l.rules = readSaved(t, b.Pod)
	}
	return l
}

// confirmByCall makes a call whose first packet is the witness.
func confirmByCall(t *testing.T, w witnessed) diff.Pair[string] {
	call := callOf(w.class.Witness)
	var answers []testbed.Answer
	for _, l := range []loaded{w.native, w.legacy} {
		answer, err := l.Dial(call)
		if err != nil {
			t.Fatal(err)
		}
		packet := l.Packet(&l.rules, call, answer.Source)
		// Rules without tproxy do not depend on whether a proxy listens.
		depends := slices.ContainsFunc(w.class.Packets, func(c diff.Condition) bool {
			return c.Field == "listener"
		})
		packet.NoListener = packet.NoListener && depends
		if d := cmp.Diff(w.class.Witness, packet,
			cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); d != "" {
			t.Errorf("the call's packet is not the witness (-witness +packet):\n%s", d)
		}
		if predicted, trace := l.Predict(&l.rules, call, answer.Source); !answer.Agrees(predicted) {
			t.Errorf("%s: %s, predicted: %s\n%s", call, answer, predicted, trace.Outcome)
		}
		answers = append(answers, answer)
	}
	if answers[0].Agrees(answers[1]) {
		t.Errorf("%s: the same with both: %s", call, answers[0])
	}
	return diff.Pair[string]{Left: answers[0].String(), Right: answers[1].String()}
}

// silence bounds the duration of a call. On a busy host an answer takes longer than testbed's
// default.
const silence = 2 * time.Second

// callOf returns the call whose first packet is the packet.
func callOf(p rules.Packet) testbed.Call {
	c := testbed.Call{
		From: testbed.FromNeighbour, Network: p.Protocol.String(), To: p.Destination,
		Local: p.Source, Mark: p.Mark, Timeout: silence,
	}
	if p.Hook == rules.Output {
		c.From, c.Owner = testbed.FromPod, *p.Owner
	}
	return c
}
