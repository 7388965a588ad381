package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestLegacyNotrackIsFound covers a pod that prevents connection tracking by rules of
// iptables-legacy, whose changes the kernel does not report. The pod does not count as redirected,
// an event names the rule, and nothing is changed.
func TestLegacyNotrackIsFound(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			network := newNetwork(t)
			r, rs, b := startAuditor(t, network, backend)
			istiotest.Run(t, network.Pod,
				"*raw\n-A OUTPUT -p tcp --dport 80 -j NOTRACK\n-A PREROUTING -p tcp --sport 80 -j NOTRACK\nCOMMIT\n",
				"iptables-legacy-restore", "--noflush")
			if captured(t, network) {
				t.Fatal("the connection was captured despite NOTRACK")
			}
			rulestest.Eventually(t, "the pod counts as drifted", func() bool { return r.states() == "1 drifted" })
			rulestest.Eventually(t, "the rule is reported", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, event := range r.events {
					if event.Reason == "RedirectBypassed" &&
						strings.Contains(event.Message, "rule of iptables-legacy: ip raw OUTPUT") {
						return true
					}
				}
				return false
			})
			if n := r.metric("sluice_pods_foreign_rules{bypass}"); n != 1 {
				t.Errorf("%v pods with a bypass, want 1", n)
			}
			if !hasRules(t, b, network.Pod, rs) {
				t.Error("Sluice's rules have changed")
			}
			istiotest.Run(t, network.Pod, "*raw\n-F\nCOMMIT\n", "iptables-legacy-restore", "--noflush")
			rulestest.Eventually(t, "the pod counts as redirected", func() bool { return r.states() == "1 redirected" })
			if n := r.metric("sluice_pods_foreign_rules{bypass}"); n != 0 {
				t.Errorf("%v pods with a bypass, want none", n)
			}
		})
	}
}

// TestRulesWithSluicesNamesAreFound covers a pod that has the desired Sluice rules, and also
// foreign rules that prevent connection tracking. The names of their chains start like those of
// Sluice's chains in iptables-legacy.
func TestRulesWithSluicesNamesAreFound(t *testing.T) {
	for name, command := range map[string][]string{
		"iptables-legacy": {
			"*raw\n:SLUICE_X - [0:0]\n-A SLUICE_X -p tcp -j NOTRACK\n-A OUTPUT -j SLUICE_X\n" +
				"-A PREROUTING -j SLUICE_X\nCOMMIT\n",
			"iptables-legacy-restore", "--noflush",
		},
		"nft": {`table ip foreign {
			comment "iptables-legacy"
			chain SLUICE_OUT { type filter hook output priority raw; meta l4proto tcp notrack; }
			chain SLUICE_IN { type filter hook prerouting priority raw; meta l4proto tcp notrack; }
		}`, "nft", "-f", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			network := newNetwork(t)
			r, _, _ := startAuditor(t, network, compat.BackendNFT)
			istiotest.Run(t, network.Pod, command[0], command[1], command[2:]...)
			if captured(t, network) {
				t.Fatal("the connection was captured although it is not tracked")
			}
			rulestest.Eventually(t, "the pod counts as drifted", func() bool { return r.states() == "1 drifted" })
			rulestest.Eventually(t, "the rule is reported", func() bool {
				return strings.Contains(r.takeEvents(), "RedirectBypassed")
			})
		})
	}
}

// TestUnsupportedForeignRulesAreReported covers a rule that the model does not support: the pod
// counts as unknown.
func TestUnsupportedForeignRulesAreReported(t *testing.T) {
	network := newNetwork(t)
	r, _, _ := startAuditor(t, network, compat.BackendNFT)
	istiotest.Run(t, network.Pod,
		"table ip foreign { chain out { type filter hook output priority -300; ip dscp 5 notrack; }; }",
		"nft", "-f", "-")
	rulestest.Eventually(t, "the pod counts as unknown", func() bool { return r.states() == "1 unknown" })
	rulestest.Eventually(t, "the rule is reported", func() bool { return strings.Contains(r.takeEvents(), "RedirectUnknown") })
	if n := r.metric("sluice_pods_foreign_rules{unknown}"); n != 1 {
		t.Errorf("%v pods with an unknown effect of foreign rules, want 1", n)
	}
}

// TestRouteWithThePassthroughSourceIsReported covers a route that gives the proxy's connections to
// the address of its pod the passthrough source address, so that they reach the application without
// the inbound proxy. The kernel sends no event about the route.
func TestRouteWithThePassthroughSourceIsReported(t *testing.T) {
	network := newNetwork(t)
	r, _, _ := startAuditor(t, network, compat.BackendNFT)
	istiotest.Run(t, network.Pod, "", "ip", "route", "replace", "local", testbed.PodIP4.String(), "dev", "eth0",
		"table", "local", "src", rules.PassthroughIPv4().String())
	rulestest.Eventually(t, "the pod counts as unknown", func() bool { return r.states() == "1 unknown" })
	rulestest.Eventually(t, "the route is reported", func() bool { return strings.Contains(r.takeEvents(), "RedirectUnknown") })
}

// TestFirewallOfAPodIsNotDrift covers rules that only accept or drop packets. Neither lets traffic
// bypass the proxy.
func TestFirewallOfAPodIsNotDrift(t *testing.T) {
	network := newNetwork(t)
	r, _, _ := startAuditor(t, network, compat.BackendNFT)
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		istiotest.Restore(t, network.Pod, istiotest.NFT, f,
			"*filter\n:OUTPUT DROP [0:0]\n-A OUTPUT -p tcp -j ACCEPT\n-A OUTPUT -p udp --dport 53 -j ACCEPT\nCOMMIT\n")
	}
	before := r.metric("sluice_audits_total{equal}")
	rulestest.Eventually(t, "the pod is audited again", func() bool {
		return r.metric("sluice_audits_total{equal}") >= before+3
	})
	if reported := r.takeEvents(); r.states() != "1 redirected" || reported != "" {
		t.Errorf("%s, events %q; want 1 redirected, no event", r.states(), reported)
	}
}

// startAuditor starts an auditor of the network's pod, which has the rules of the backend, and
// waits for the first audit.
func startAuditor(
	t *testing.T, network *testbed.Network, backend compat.BackendName,
) (*kernelTestEnv, rules.Ruleset, compat.Backend) {
	t.Helper()
	r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "200ms"})
	// The processor time of the test's polling must not count as the audit's.
	r.options.ProcessorTime = func() time.Duration { return 0 }
	rs, b := r.add("web", network.Pod, backend)
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	return r, rs, b
}
