package compat_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// answerTimeout is the timeout of a call that must be answered.
const answerTimeout = 20 * time.Second

// A flow is a call and its expected listener in each mode. from is a key of callers, and to is a
// key of hosts with a port.
type flow struct {
	from, network, to, redirect, tproxy string
}

// istioFlows lists calls and the listeners that istio-init's rules with Sluice's deviations select
// for the calls. A host stands for an address of each family.
var istioFlows = []flow{
	{"in", "tcp", "pod:8080", "inbound", "inbound"},
	{"in", "tcp", "pod:15001", "inbound", "inbound"},
	{"in", "tcp", "pod:15006", "inbound", "inbound"},
	{"in", "tcp", "pod:15008", "tunnel", "tunnel"},
	{"in", "tcp", "pod:15021", "health", "health"},
	{"in", "udp", "pod:8080", "application", "application"},
	{"app", "tcp", "world:80", "outbound", "outbound"},
	{"root", "tcp", "world:80", "outbound", "outbound"},
	{"app", "udp", "world:443", "outside", "outside"},
	{"app", "tcp", "pod:8080", "application", "application"},
	{"app", "tcp", "lo:8080", "application", "application"},
	{"app", "tcp", "pod:15008", "tunnel", "tunnel"},
	{"proxy", "tcp", "pod:8080", "inbound", "inbound"},
	{"proxy", "tcp", "pod:15008", "tunnel", "tunnel"},
	{"proxy", "tcp", "lo:8080", "application", "application"},
	{"proxy", "tcp", "world:80", "outside", "outside"},
	{"rootproxy", "tcp", "pod:8080", "application", "inbound"},
	{"rootproxy", "tcp", "world:80", "outside", "outside"},
}

// dnsFlows are the additional flows with captured DNS.
var dnsFlows = []flow{
	{"app", "udp", "world:53", "dns", "dns"},
	{"app", "tcp", "world:53", "dns", "dns"},
	{"root", "udp", "lo:53", "dns", "dns"},
	{"proxy", "udp", "world:53", "outside", "outside"},
	{"rootproxy", "udp", "world:53", "outside", "outside"},
	{"in", "udp", "pod:53", "application", "application"},
}

// uncapturedFlows are flows in a pod without rules.
var uncapturedFlows = []flow{
	{"in", "tcp", "pod:8080", "application", "application"},
	{"app", "tcp", "world:80", "outside", "outside"},
	{"app", "udp", "world:53", "outside", "outside"},
	{"proxy", "tcp", "pod:8080", "application", "application"},
}

var hosts = map[string][]netip.Addr{
	"world": {netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("2001:db8::9")},
	"pod":   {testbed.PodIP4, testbed.PodIP6},
	"lo":    {netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
}

var callers = map[string]testbed.Call{
	"in":        {From: testbed.FromNeighbor},
	"app":       {Owner: testbed.ApplicationOwner},
	"root":      {},
	"proxy":     {Owner: testbed.ProxyOwner},
	"rootproxy": {Owner: testbed.TProxyOwner},
}

// calls returns the calls of the flow, one for each family.
func (f flow) calls() []testbed.Call {
	host, text, _ := strings.Cut(f.to, ":")
	port, err := rules.ParsePort(text)
	if err != nil {
		panic(err)
	}
	var calls []testbed.Call
	for _, a := range hosts[host] {
		c := callers[f.from]
		c.Network, c.To = f.network, netip.AddrPortFrom(a, port)
		calls = append(calls, c)
	}
	return calls
}

func (f flow) want(mode rules.Mode) string {
	if mode == rules.ModeTProxy {
		return f.tproxy
	}
	return f.redirect
}

// startNetwork returns a network with an application, and a proxy for both modes.
func startNetwork(t *testing.T, o testbed.Options, proxy rules.Owner) *testbed.Network {
	t.Helper()
	netnstest.RequireIDs(t, o.IDBase+1337, o.IDBase+1337)
	network, err := testbed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(network.StartProxy(testbed.ProxyOptions{Owner: proxy, Transparent: true}),
		network.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	return network
}

// applyAndRead applies the rules and returns all rules in the namespace.
func applyAndRead(
	t *testing.T, b compat.Backend, network *testbed.Network, rs rules.Ruleset,
) rules.Ruleset {
	t.Helper()
	if _, err := b.Apply(network.Pod, rs, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	if err := network.WaitForRouting(rs.Routing); err != nil {
		t.Fatal(err)
	}
	live, err := compat.ReadLive(network.Pod, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	return live.Ruleset
}

// checkFlows makes the calls, and compares the answering listener with the expected one and with
// the prediction of the model for the rules in the kernel.
func checkFlows(
	t *testing.T, network *testbed.Network, live *rules.Ruleset, mode rules.Mode, flows []flow,
) {
	t.Helper()
	for _, f := range flows {
		for _, c := range f.calls() {
			c.Timeout = answerTimeout
			got, err := network.Dial(c)
			if err != nil {
				t.Fatal(err)
			}
			predicted, trace := network.Predict(live, c, got.Source)
			if string(got.By) != f.want(mode) || !got.Agrees(predicted) {
				t.Errorf("%s: %s\n\twant      %s\n\tpredicted %s, %s", c, got, f.want(mode),
					predicted, trace.Outcome)
			}
			if err := checkArrival(got, c, trace.Outcome); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
}

// checkArrival verifies that the call arrived at its destination, or at the port to which outcome
// redirects it.
func checkArrival(a testbed.Answer, c testbed.Call, outcome rules.Outcome) error {
	switch {
	case a.Outcome != testbed.Answered:
		return fmt.Errorf("not answered: %s", a)
	case outcome.Redirect != 0 && a.Local.Port() != outcome.Redirect:
		return fmt.Errorf("reached %s, want port %d", a.Local, outcome.Redirect)
	case outcome.Redirect == 0 && a.Local != c.To:
		return fmt.Errorf("reached %s, want the destination", a.Local)
	}
	return nil
}

func TestLegacyDeliversCallsToTheExpectedListeners(t *testing.T) {
	for _, tc := range []struct {
		mode  rules.Mode
		proxy rules.Owner
	}{{rules.ModeRedirect, testbed.ProxyOwner}, {rules.ModeTProxy, testbed.TProxyOwner}} {
		t.Run(string(tc.mode), func(t *testing.T) {
			t.Parallel()
			network, b := startNetwork(t, testbed.Options{}, tc.proxy), chosen(t, compat.BackendLegacy)
			mode := func(r *rules.Redirect) { r.Mode = tc.mode }
			live := applyAndRead(t, b, network, compiled(t, mode, dual))
			checkFlows(t, network, &live, tc.mode, istioFlows)
			live = applyAndRead(t, b, network, compiled(t, mode, dual, allDNS, dropInvalid))
			checkFlows(t, network, &live, tc.mode, append(istioFlows, dnsFlows...))
			if _, err := b.Remove(network.Pod); err != nil {
				t.Fatal(err)
			}
			checkFlows(t, network, &rules.Ruleset{}, tc.mode, uncapturedFlows)
		})
	}
}

// The rules contain users of the user namespace that owns the pod's network namespace.
func TestLegacyDeliversCallsInAnotherUserNamespace(t *testing.T) {
	t.Parallel()
	o := testbed.Options{Pod: netnstest.NewInUserNS(t), IDBase: netnstest.UserNSBase}
	network, b := startNetwork(t, o, testbed.TProxyOwner), chosen(t, compat.BackendLegacy)
	live := applyAndRead(t, b, network, compiled(t, tproxy, dual, allDNS))
	checkFlows(t, network, &live, rules.ModeTProxy, append(istioFlows, dnsFlows...))
}
