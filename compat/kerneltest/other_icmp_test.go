package kerneltest_test

import (
	"net"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRulesMatchICMPOfTheOtherFamily verifies that a table ip6 can match ICMP messages, that a
// table ip can match ICMPv6 messages, and that decisions consider this.
func TestRulesMatchICMPOfTheOtherFamily(t *testing.T) {
	const hook = "type filter hook output priority 0;\n"
	for _, tc := range []struct {
		name, rules     string
		network, server string
		echoRequest     byte
	}{
		{
			"ICMP in IPv6", "table ip6 a {\nchain c {\n" + hook +
				"icmp type echo-request counter drop\n}\n}\n",
			"ip6:1", "::1", 8,
		},
		{
			"ICMPv6 in IPv4", "table ip a {\nchain c {\n" + hook +
				"icmpv6 type echo-request counter drop\n}\n}\n",
			"ip4:58", "127.0.0.1", 128,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, tc.rules, "nft", "-f", "-")
			err := ns.Do(func() error {
				c, err := net.Dial(tc.network, tc.server)
				if err != nil {
					return err
				}
				defer c.Close()
				// The error is EPERM if the packet is dropped.
				_, _ = c.Write([]byte{tc.echoRequest, 0, 0, 0, 0, 0, 0, 0})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			live := readLive(t, ns)
			if hits := live.Tables[0].Chains[0].Rules[0].Hits.Packets; hits != 1 {
				t.Errorf("the kernel: the rule matches %d packets, want 1", hits)
			}
			r := diff.Decide(diff.Side{Ruleset: *live}, diff.Side{}, diff.Options{})
			if r.StrictVerdict() == diff.Equivalent {
				t.Errorf("a ruleset with the rule, compared with no rules: %s, want another verdict",
					r.StrictVerdict())
			}
		})
	}
}
