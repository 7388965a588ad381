package nft_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTrafficWithoutListeningProxy checks that captured packets do not reach the application. In
// TPROXY mode a rule drops them: without this rule, the kernel would deliver them to the
// application.
func TestTrafficWithoutListeningProxy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		mode rules.Mode
		stop func(*testing.T, *testbed.Network)
		want string
	}{
		{"no proxy", rules.ModeRedirect, stopProxy, "refused"},
		{"no proxy", rules.ModeTProxy, stopProxy, "silent"},
		{"a proxy whose listener is not transparent", rules.ModeTProxy, restartNonTransparent, "silent"},
	} {
		t.Run(tc.name+"/"+string(tc.mode), func(t *testing.T) {
			t.Parallel()
			b := startNetwork(t, testbed.Options{}, tc.mode, nil)
			rs := applyRedirect(t, b, sidecar(tc.mode))
			checkCalls(t, b, rs, tc.mode, []row{{call: "in tcp pod:8080", want: "inbound"}})
			tc.stop(t, b)
			checkCalls(t, b, rs, tc.mode, []row{
				{call: "in tcp pod:8080", want: tc.want},
				{call: "app tcp pod:8080", want: "application"},
				{call: "in udp pod:8080", want: "application"},
			})
		})
	}
}

func stopProxy(_ *testing.T, b *testbed.Network) { b.StopProxy() }

func restartNonTransparent(t *testing.T, b *testbed.Network) {
	b.StopProxy()
	if err := b.StartProxy(testbed.ProxyOptions{Owner: testbed.TProxyOwner}); err != nil {
		t.Fatal(err)
	}
}

// TestTrafficFromTheClientsAddress covers a proxy that connects to the application from the address
// of the proxy's client. Because of the proxy's mark, the packets of the application return to the
// proxy instead of the client.
func TestTrafficFromTheClientsAddress(t *testing.T) {
	t.Parallel()
	b := startNetwork(t, testbed.Options{}, rules.ModeTProxy, nil)
	rs := applyRedirect(t, b, sidecar(rules.ModeTProxy))
	for _, c := range (row{call: "rootproxy tcp pod:8080 from world:7000 mark 1337"}).calls() {
		c.Transparent = true
		got, predicted, trace := dial(t, b, &rs, c)
		if !isAnswer(got, "application") || got.Peer != c.Local || !got.Agrees(predicted) {
			t.Errorf("%s: %s, peer %s, predicted %s, want the application and peer %s\n%s", c, got,
				got.Peer, predicted, c.Local, formatTrace(trace))
		}
	}
}

// TestTrafficMarks checks that a mark of the application has no effect unless it is one of Istio's
// marks.
func TestTrafficMarks(t *testing.T) {
	t.Parallel()
	scenario{
		name: "marks",
		rows: []row{
			{call: "app tcp world:80 mark 7", want: "outbound"},
			{call: "app tcp pod:8080 mark 7", want: "application"},
			{call: "app tcp pod:8080 mark 1338", want: "application", tproxy: "inbound"},
			{call: "app tcp pod:8080 mark 1337", want: "application"},
			{call: "proxy tcp pod:8080 mark 1337", want: "inbound"},
			{call: "rootproxy tcp pod:8080 mark 1337", want: "application"},
		},
	}.run(t)
}

func TestTrafficAfterRemoval(t *testing.T) {
	t.Parallel()
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := startNetwork(t, testbed.Options{}, mode, nil)
			r := sidecar(mode)
			allDNS(&r)
			applyRedirect(t, b, r)
			if removed, err := nft.Remove(b.Pod); err != nil || !removed {
				t.Fatalf("removed %t, error %v, want the removal of the table", removed, err)
			}
			checkCalls(t, b, rules.Ruleset{}, mode, []row{
				{call: "app tcp world:80", want: "outside"},
				{call: "app udp world:53", want: "outside"},
				{call: "in tcp pod:8080", want: "application"},
				{call: "proxy tcp pod:8080", want: "application"},
				{call: "app tcp world:80 mark 1337", want: "outside"},
			})
			if _, err := b.Dial(testbed.Call{
				Network: "udp", Local: netip.AddrPortFrom(rules.PassthroughIPv6(), 0),
				To: netip.AddrPortFrom(testbed.PodIP6, 8080),
			}); err == nil {
				t.Errorf("%s is still an address of the pod", rules.PassthroughIPv6())
			}
		})
	}
}
