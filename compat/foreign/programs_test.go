package foreign_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRulesOfProgramsLetNoTrafficBypassTheProxy combines a pod's rules with the rules of programs
// and of istio-init, and with a rule that queues later packets of connections that are not
// captured. Rules for ports of the host send connections of the pod to itself, which are not
// captured, to another host.
func TestRulesOfProgramsLetNoTrafficBypassTheProxy(t *testing.T) {
	const programs, istio = "../save/testdata/programs/", "../../nft/istio/istiotest/testdata/"
	for path, hostPorts := range map[string]string{ // the chain of rules for ports of the host
		programs + "calico-v4.save": "", programs + "docker-v4.save": "DOCKER",
		programs + "docker-container-v4.save": "", programs + "firewalld-v4.save": "",
		programs + "firewalld-v6.save": "", programs + "kube-proxy-v4.save": "KUBE-NODEPORTS",
		programs + "kube-proxy-v6.save": "KUBE-NODEPORTS", programs + "portmap-v4.save": "CNI-HOSTPORT-DNAT",
		programs + "portmap-v6.save": "CNI-HOSTPORT-DNAT", istio + "redirect-v4.save": "",
		istio + "redirect-v6.save": "",
	} {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".save"), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			family := rules.IPv4
			if strings.HasSuffix(path, "-v6.save") {
				family = rules.IPv6
			}
			parse := func(text string) []rules.Table {
				t.Helper()
				tables, err := save.Parse(family, path, strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				return tables
			}
			desired := captureAll()
			check := func(want foreign.Verdict, others ...rules.Table) {
				t.Helper()
				live := desired
				live.Tables = append(others, desired.Tables...)
				effect := foreign.Decide(compat.Live{
					Ruleset: live, LoopbackName: "lo", Addresses: []netip.Addr{testbed.PodIP4, testbed.PodIP6},
				}, desired, diff.DefaultBudget)
				if effect.Verdict() != want {
					t.Errorf("verdict %s, want %s:\n%s", effect.Verdict(), want, strings.Join(effect.Messages(), "\n"))
				}
			}
			text := string(content)
			if hostPorts != "" {
				check(foreign.Bypassed, parse(text)...)
				var lines []string
				for line := range strings.Lines(text) {
					if !strings.Contains(line, "--dst-type LOCAL -j "+hostPorts) {
						lines = append(lines, line)
					}
				}
				text = strings.Join(lines, "")
			}
			check(foreign.None, parse(text)...)
			const queue = "*security\n-A OUTPUT -p udp --dport 9999 -m conntrack --ctstate ESTABLISHED -j NFQUEUE\nCOMMIT\n"
			check(foreign.None, append(parse(queue), parse(text)...)...)
		})
	}
}
