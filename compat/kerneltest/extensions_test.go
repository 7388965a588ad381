package kerneltest_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestModelDistinguishesExtensionsByRule verifies that the model distinguishes expressions of
// nftables from extensions of xtables by the rule, not by the form of the table. Only extensions of
// xtables read the mark of a template.
func TestModelDistinguishesExtensionsByRule(t *testing.T) {
	const (
		raw   = "type filter hook output priority raw; policy accept;\n"
		zone  = "ct zone set 5\n"
		reads = "ct mark 0 counter meta mark set meta mark or 1\n"
	)
	for _, tc := range []struct {
		name   string
		load   func(run func(input, name string, args ...string))
		native bool // whether the rules are expressions of nftables
	}{
		{
			"nft in a table of the form of iptables-nft",
			func(run func(input, name string, args ...string)) {
				run("table ip raw {\nchain OUTPUT {\n"+raw+zone+reads+"}\n}\n", "nft", "-f", "-")
			}, true,
		},
		{
			"iptables-nft in a table to which nft has added a chain",
			func(run func(input, name string, args ...string)) {
				run("", "iptables-nft", "-t", "raw", "-A", "OUTPUT", "-j", "CT", "--zone", "5")
				run("", "iptables-nft", "-t", "raw", "-A", "OUTPUT", "-m", "connmark",
					"--mark", "0", "-j", "MARK", "--or-mark", "1")
				run("add chain ip raw other { type filter hook input priority 5; }\n",
					"nft", "-f", "-")
			}, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			tc.load(func(input, name string, args ...string) {
				istiotest.Run(t, ns, input, name, args...)
			})
			sendUDP(t, ns)
			want := uint32(1)
			if tc.native {
				want = 0
			}
			live := readLive(t, ns)
			if kernel := matchedMarks(live); kernel != want {
				t.Errorf("the kernel: mark %#x, want %#x", kernel, want)
			}
			const packet = "out udp 127.0.0.1:4000 > 127.0.0.1:9"
			got := diff.Explain(live, parsed(t, packet)).Outcome
			if want := (rules.Outcome{Mark: want, Zone: 5}); got != want {
				t.Errorf("the model: %s, want %s", got, want)
			}
		})
	}
}
