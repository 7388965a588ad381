package foreign_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRulesOfProgramsLetNoTrafficBypassTheProxy combines a pod's rules with the rules of programs
// and of istio-init, and with a rule that queues later packets of connections that are not
// captured.
func TestRulesOfProgramsLetNoTrafficBypassTheProxy(t *testing.T) {
	const programs, istio = "../save/testdata/programs/", "../../nft/istio/istiotest/testdata/"
	for _, path := range []string{
		programs + "calico-v4.save", programs + "docker-v4.save", programs + "docker-container-v4.save",
		programs + "firewalld-v4.save", programs + "firewalld-v6.save", programs + "kube-proxy-v4.save",
		programs + "kube-proxy-v6.save", programs + "portmap-v4.save", programs + "portmap-v6.save",
		istio + "redirect-v4.save", istio + "redirect-v6.save",
	} {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".save"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			family := rules.IPv4
			if strings.HasSuffix(path, "-v6.save") {
				family = rules.IPv6
			}
			others, err := save.Parse(family, path, strings.NewReader(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			queue, err := save.Parse(family, "queue", strings.NewReader(
				"*security\n-A OUTPUT -p udp --dport 9999 -m conntrack --ctstate ESTABLISHED -j NFQUEUE\nCOMMIT\n"))
			if err != nil {
				t.Fatal(err)
			}
			desired := compiled()
			for _, foreignTables := range [][]rules.Table{others, append(queue, others...)} {
				live := desired
				live.Tables = append(foreignTables, desired.Tables...)
				effect := foreign.Decide(compat.Live{Ruleset: live, LoopbackName: "lo"}, desired,
					diff.DefaultBudget)
				if effect.Verdict() != foreign.None {
					t.Errorf("%d tables: verdict %s, want none:\n%s", len(foreignTables), effect.Verdict(),
						strings.Join(effect.Messages(), "\n"))
				}
			}
		})
	}
}
