package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// secondInterface is the interface that connects the pod to a machine.
const secondInterface = "vnet0"

// sidecar returns the parameters of a pod with a sidecar.
func sidecar(mode rules.Mode) rules.Redirect {
	r := rules.DefaultRedirect()
	r.Mode = mode
	r.InboundPorts.All = true
	r.InboundExcludePorts = rules.Singles[uint16](15090, 15021, 15020)
	r.OutboundCIDRs.All = true
	r.IPv6 = true
	return r
}

// A scenario is a change of the parameters of sidecar, with the expected answers to calls in each
// mode.
type scenario struct {
	name   string
	change func(*rules.Redirect)
	only   rules.Mode                  // the only mode to test; empty for both
	proxy  func(*testbed.ProxyOptions) // changes the options of the proxy
	rows   []row
}

// run creates a network for each mode and makes the calls of the rows in order.
func (s scenario) run(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		if s.only != "" && s.only != mode {
			continue
		}
		t.Run(s.name+"/"+string(mode), func(t *testing.T) {
			t.Parallel()
			r := sidecar(mode)
			if s.change != nil {
				s.change(&r)
			}
			b := startNetwork(t, testbed.Options{Interface: secondInterface}, mode, s.proxy)
			checkCalls(t, b, applyRedirect(t, b, r), mode, s.rows)
		})
	}
}

// startNetwork returns a network with an application and the proxy of the mode. change, if not nil,
// changes the options of the proxy.
func startNetwork(
	t *testing.T, o testbed.Options, mode rules.Mode, change func(*testbed.ProxyOptions),
) *testbed.Network {
	t.Helper()
	netnstest.RequireIDs(t, o.IDBase+1337, o.IDBase+1337)
	b, err := testbed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	p := testbed.ProxyOptions{Owner: testbed.ProxyOwner}
	if mode == rules.ModeTProxy {
		p.Owner, p.Transparent = testbed.TProxyOwner, true
	}
	if change != nil {
		change(&p)
	}
	if err := errors.Join(b.StartProxy(p),
		b.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	return b
}

// applyRedirect applies the redirection to the network's pod and returns the ruleset that it reads
// from the kernel.
func applyRedirect(t *testing.T, b *testbed.Network, r rules.Redirect) rules.Ruleset {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return applyRules(t, b, rules.MustCompile(r))
}

// applyRules is like [applyRedirect], but takes a compiled ruleset.
func applyRules(t *testing.T, b *testbed.Network, rs rules.Ruleset) rules.Ruleset {
	t.Helper()
	if _, err := nft.Apply(b.Pod, rs); err != nil {
		t.Fatal(err)
	}
	if err := b.WaitForRouting(rs.Routing); err != nil {
		t.Fatal(err)
	}
	rs, err := nft.Read(b.Pod)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// checkCalls makes the calls of the rows and compares the answers with the rows and with the
// model's prediction.
func checkCalls(t *testing.T, b *testbed.Network, rs rules.Ruleset, mode rules.Mode, rows []row) {
	t.Helper()
	for _, r := range rows {
		for _, c := range r.calls() {
			want := r.want
			if mode == rules.ModeTProxy && r.tproxy != "" {
				want = r.tproxy
			}
			got, predicted, trace := dial(t, b, &rs, c)
			if !isAnswer(got, want) || !got.Agrees(predicted) {
				t.Errorf("%s\n\tgot       %s\n\twant      %s\n\tpredicted %s\n%s", c, got, want,
					predicted, formatTrace(trace))
			} else if err := checkAddrs(got, c, trace.Outcome); err != nil {
				t.Errorf("%s: %s: %v\n%s", c, got, err, formatTrace(trace))
			}
		}
	}
}

// dial makes the call and returns its answer, the predicted answer and the trace. It waits up to
// callTimeout for the answer, but only for testbed.DefaultTimeout if the model predicts silence.
func dial(
	t *testing.T, b *testbed.Network, rs *rules.Ruleset, c testbed.Call,
) (got, predicted testbed.Answer, trace rules.Trace) {
	t.Helper()
	if predicted, _ = b.Predict(rs, c, netip.AddrPort{}); predicted.Outcome != testbed.Silent {
		c.Timeout = callTimeout
	}
	got, err := b.Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	predicted, trace = b.Predict(rs, c, got.Source)
	return got, predicted, trace
}

// isAnswer reports whether the answer is as expected. want is as in row.
func isAnswer(a testbed.Answer, want string) bool {
	switch want {
	case "silent":
		return a.Outcome == testbed.Silent
	case "refused":
		return a.Outcome == testbed.Refused
	}
	return a.Outcome == testbed.Answered && string(a.By) == want
}

// checkAddrs checks the local address and the peer address of the server's socket.
func checkAddrs(a testbed.Answer, c testbed.Call, outcome rules.Outcome) error {
	if a.Outcome != testbed.Answered {
		return nil
	}
	// NAT changes the source port of a connection if an earlier connection from the same port was
	// redirected to the same address. Therefore the ports are compared only if TPROXY captured
	// the packet.
	if a.Peer.Addr() != a.Source.Addr() || a.Peer != a.Source && outcome.TProxy != 0 {
		return fmt.Errorf("source address %s, want %s", a.Peer, a.Source)
	}
	switch {
	case outcome.Redirect != 0 && a.Local.Port() != outcome.Redirect:
		return fmt.Errorf("reached %s, want port %d", a.Local, outcome.Redirect)
	case outcome.Redirect == 0 && a.Local != c.To:
		return fmt.Errorf("reached %s: the destination was translated", a.Local)
	}
	return nil
}

// formatTrace formats the path of the packet.
func formatTrace(t rules.Trace) string {
	var text strings.Builder
	for _, p := range t.Passes {
		fmt.Fprintf(&text, "\t%s\n", p.Packet)
		for _, s := range p.Steps {
			fmt.Fprintf(&text, "\t\t%s\n", s)
		}
	}
	fmt.Fprintf(&text, "\t%s", t.Outcome)
	return text.String()
}
