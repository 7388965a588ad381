package rules_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// recordedHost returns the parameters of a recorded run of Istio's node agent on a node. The pods
// are the members of the agent's sets.
func recordedHost(t testing.TB, run string) rules.AmbientHost {
	t.Helper()
	var recorded struct {
		Args struct {
			IPv6       bool       `json:"AMBIENT_IPV6"`
			Source     netip.Addr `json:"HOST_PROBE_SNAT_IP"`
			SourceIPv6 netip.Addr `json:"HOST_PROBE_SNAT_IPV6"`
			Elements   [][2]string
			KubeletUID uint32 `json:"kubelet_uid,string"`
		}
	}
	text := readText(t, filepath.Join(run, "args.json"))
	if err := json.Unmarshal([]byte(text), &recorded); err != nil {
		t.Fatal(err)
	}
	args := recorded.Args
	h := ambientHost()
	h.Pods, h.KubeletUID, h.IPv6 = nil, args.KubeletUID, args.IPv6
	h.ProbeSourceIPv4, h.ProbeSourceIPv6 = args.Source, args.SourceIPv6
	for _, e := range args.Elements {
		h.Pods = append(h.Pods, netip.MustParseAddr(e[0]))
	}
	return h
}

// readIPSets returns the members of the sets in the output of ipset save.
func readIPSets(text string) map[string][]netip.Addr {
	members := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "add" {
			members[words[1]] = append(members[words[1]], netip.MustParseAddr(words[2]))
		}
	}
	return members
}

// On the recorded nodes, every difference between Sluice's rules and the rules of a backend of
// Istio is a known deviation. Without the deviation from this backend, every packet is treated
// alike.
func TestAmbientHostRulesTreatPacketsAsRecordedRulesDo(t *testing.T) {
	for _, name := range []string{
		"101-host-v4", "102-host-dual", "103-host-dual-kubelet-uid-1000", "104-host-other-snat",
		"105-host-rules-twice", "109-host-v6-address-with-ipv6-off",
	} {
		run := filepath.Join(ambientDir(t), name)
		h := recordedHost(t, run)
		asJSON, err := nftlist.Parse("nft.json",
			strings.NewReader(readText(t, filepath.Join(run, "nft.json"))))
		if err != nil {
			t.Fatal(err)
		}
		// The run has recorded the same rules as JSON and as text.
		wantEquivalent(t, rules.Ruleset{Tables: asJSON.Tables}, recordedNFT(t, run))
		type backend struct {
			deviation rules.DeviationID
			recorded  rules.Ruleset
		}
		backends := []backend{{rules.ProbesByUser, recordedNFT(t, run)}}
		if _, err := os.Stat(filepath.Join(run, "legacy-v4.save")); err == nil {
			legacy := recordedLegacy(t, run)
			rulestest.ReplaceIPSets(t, legacy,
				readIPSets(readText(t, filepath.Join(run, "legacy-ipset.txt"))))
			backends = append(backends, backend{rules.ProbesByHost, legacy})
		}
		for _, backend := range backends {
			t.Run(name+" "+string(backend.deviation), func(t *testing.T) {
				r := diff.Decide(diff.Side{
					Ruleset: compileHost(t, h), RoutingKnown: true, AmbientHost: &h,
				}, diff.Side{Ruleset: backend.recorded}, diff.Options{})
				if r.Verdict() != diff.Equivalent || r.StrictVerdict() != diff.Different {
					t.Errorf("verdict %s, strictly %s; want %s, strictly %s\n%v\n%v", r.Verdict(),
						r.StrictVerdict(), diff.Equivalent, diff.Different, r.Classes, r.Undecided)
				}
				// Other classes have both deviations: packets of the kubelet's user are probes if
				// either deviation is disabled.
				if !slices.ContainsFunc(r.Classes, func(c diff.Class) bool {
					return slices.Equal(c.Deviations, []rules.DeviationID{backend.deviation})
				}) {
					t.Errorf("no class has only the deviation %s: %v", backend.deviation, r.Classes)
				}
				h := h
				h.Without = []rules.DeviationID{backend.deviation}
				without := compileHost(t, h)
				for i := range without.Tables {
					// The owner match of iptables also matches packets of the kernel's sockets,
					// such as an NFS client's; nftables' does not.
					without.Tables[i].XTables = backend.deviation == rules.ProbesByHost
				}
				r = diff.Decide(diff.Side{Ruleset: without, RoutingKnown: true},
					diff.Side{Ruleset: backend.recorded}, diff.Options{})
				if r.StrictVerdict() != diff.Equivalent {
					t.Errorf("without the deviation: verdict %s, want %s\n%v\n%v", r.StrictVerdict(),
						diff.Equivalent, r.Classes, r.Undecided)
				}
			})
		}
	}
}
