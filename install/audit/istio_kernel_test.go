package audit_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// istioCNI contains the rules that istio-cni programs in a pod with default settings.
const istioCNI = `*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -p tcp -m tcp --dport 15020 -j RETURN
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`

// TestIstiosRulesAreInspected covers pods without a record of ADD that have rules of Istio. They
// count as redirected only if the rules capture the traffic that Sluice's rules would capture. The
// agent does not change them.
func TestIstiosRulesAreInspected(t *testing.T) {
	for _, c := range []struct{ name, save, want, event string }{
		{"istio-cni's rules", istioCNI, "1 redirected", ""},
		{
			"a chain that nothing uses", "*nat\n:ISTIO_OUTPUT - [0:0]\n-A ISTIO_OUTPUT -j RETURN\nCOMMIT\n",
			"1 drifted", "RedirectBypassed",
		},
		{
			"istio-cni's rules without the jump for outbound traffic",
			strings.Replace(istioCNI, "-A OUTPUT -j ISTIO_OUTPUT\n", "", 1),
			"1 drifted", "RedirectBypassed",
		},
		{
			"istio-cni's rules with a rule of another program",
			strings.Replace(istioCNI, "-A OUTPUT", "-A OUTPUT -p tcp --dport 80 -j ACCEPT\n-A OUTPUT", 1),
			"1 drifted", "RedirectBypassed",
		},
	} {
		for name, v := range map[string]istiotest.Variant{
			"legacy": istiotest.Legacy, "nft": istiotest.NFT,
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				network := newNetwork(t)
				r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "200ms"})
				istiotest.Restore(t, network.Pod, v, rules.IPv4, c.save)
				_, _ = r.add("web", network.Pod, "")
				before := istiotest.Save(t, network.Pod, v, rules.IPv4)
				r.start()
				rulestest.Eventually(t, "the state is "+c.want, func() bool { return r.states() == c.want })
				if c.event != "" {
					rulestest.Eventually(t, "an event reports the bypass", func() bool {
						return strings.Contains(r.takeEvents(), c.event)
					})
				} else {
					audited := r.metric("sluice_audits_total{drift}")
					rulestest.Eventually(t, "the pod is audited again", func() bool {
						return r.metric("sluice_audits_total{drift}") >= audited+3
					})
					if reported := r.takeEvents(); reported != "" || r.states() != c.want {
						t.Errorf("%s, events %q; want %s, no event", r.states(), reported, c.want)
					}
				}
				if after := istiotest.Save(t, network.Pod, v, rules.IPv4); after != before {
					t.Errorf("the rules have changed:\n%s", after)
				}
				if got := captured(t, network); got != (c.event == "") {
					t.Errorf("captured: %t, want %t", got, c.event == "")
				}
			})
		}
	}
}
