package rules_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// ambientDir returns the directory with the recorded runs of Istio's node agent:
// $SLUICE_GOLDEN_AMBIENT, or a directory next to the repository. Without it the test is skipped.
func ambientDir(t testing.TB) string {
	dir := cmp.Or(os.Getenv("SLUICE_GOLDEN_AMBIENT"),
		filepath.Join("..", "..", "shared", "golden-ambient"))
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no recorded runs of Istio's node agent: set SLUICE_GOLDEN_AMBIENT: %v", err)
	}
	return dir
}

// ambientMatrix returns the directories of the runs that combine all parameters.
func ambientMatrix(t testing.TB) []string {
	runs, err := filepath.Glob(filepath.Join(ambientDir(t), "0[0-2]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) == 0 {
		t.Skip("the directory of recorded runs contains no runs that combine all parameters")
	}
	return runs
}

func TestAmbientReferenceEqualsRecordedRules(t *testing.T) {
	for _, run := range ambientMatrix(t) {
		t.Run(filepath.Base(run), func(t *testing.T) {
			a := recordedAmbient(t, run)
			recorded := onlyRules(recordedLegacy(t, run))
			for _, d := range rules.Compare(recorded, onlyRules(ambientReference(t, a))) {
				t.Error(d)
			}
		})
	}
}

// recordedLegacy returns the rules that Istio's iptables backend left in the pod. A recorded text
// is empty if no rule was written.
func recordedLegacy(t testing.TB, run string) rules.Ruleset {
	var rs rules.Ruleset
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		name := fmt.Sprintf("legacy-v%d.save", f)
		text := readText(t, filepath.Join(run, name))
		if strings.TrimSpace(text) == "" {
			continue
		}
		tables, err := save.Parse(f, name, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		rs.Tables = append(rs.Tables, tables...)
	}
	return rs
}

// recordedNFT returns the rules that Istio's nftables backend left in the pod.
func recordedNFT(t testing.TB, run string) rules.Ruleset {
	file := filepath.Join(run, "nft.txt")
	text := readText(t, file)
	if strings.TrimSpace(text) == "" {
		return rules.Ruleset{}
	}
	listing, err := nftlist.Parse(file, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules.Ruleset{Tables: listing.Tables}
}

// A recordedStep contains the parameters of a call of Istio's node agent.
type recordedStep struct {
	IPv6          bool     `json:"AMBIENT_IPV6"`
	DNS           bool     `json:"AMBIENT_DNS_CAPTURE"`
	PodDNS        string   `json:"ambient.istio.io/dns-capture"`
	BypassInbound bool     `json:"ambient.istio.io/bypass-inbound-capture"`
	Interfaces    []string `json:"istio.io/reroute-virtual-interfaces"`
}

// recordedAmbient returns the parameters of the last call of a recorded run.
func recordedAmbient(t testing.TB, run string) rules.Ambient {
	t.Helper()
	text := []byte(readText(t, filepath.Join(run, "args.json")))
	var sequence []struct{ Args recordedStep }
	var step recordedStep
	if err := json.Unmarshal(text, &sequence); err == nil {
		step = sequence[len(sequence)-1].Args
	} else if err := json.Unmarshal(text, &step); err != nil {
		t.Fatal(err)
	}
	a := rules.DefaultAmbient()
	a.IPv6, a.DNS, a.BypassInboundCapture = step.IPv6, step.DNS, step.BypassInbound
	if step.PodDNS != "" {
		a.DNS = step.PodDNS == "true"
	}
	names, err := rules.ParseInterfaces(strings.Join(step.Interfaces, ","))
	if err != nil {
		t.Fatal(err)
	}
	a.RerouteInterfaces = names
	return a
}

// ambientDeviation lists the families in which a backend of Istio treats packets differently, with
// the reason.
type ambientDeviation struct {
	legacy, nft []rules.Family
	reason      string
}

var (
	onlyIPv6     = []rules.Family{rules.IPv6}
	bothFamilies = []rules.Family{rules.IPv4, rules.IPv6}
)

// ambientDeviations lists the runs outside ambientMatrix in which a backend of Istio treats packets
// differently.
var ambientDeviations = map[string]ambientDeviation{
	"037-virt-plus-suffix": {nft: bothFamilies, reason: "its nftables backend fails at the +"},
	"038-virt-star-suffix": {
		legacy: bothFamilies, reason: "its iptables backend treats * as a character of the name",
	},
	"053-seq-dns-to-nodns-reconcile": {
		nft: bothFamilies, reason: "its nftables backend leaves the DNS zones in place",
	},
	"054-seq-dns-to-nodns-noreconcile": {
		legacy: bothFamilies, nft: bothFamilies,
		reason: "its iptables backend fails and leaves the previous rules",
	},
	"060-foreign-rules-present": {
		legacy: []rules.Family{rules.IPv4}, reason: "a foreign rule precedes its jump",
	},
}

// In every recorded configuration, every packet has the same outcome as in both backends of Istio.
// There are two exceptions: [ambientDeviations], and Istio's nftables backend without IPv6, which
// marks IPv6 packets, and captures IPv6 DNS over UDP and IPv6 packets of virtual interfaces.
func TestAmbientRulesTreatPacketsAsRecordedRulesDo(t *testing.T) {
	runs := ambientMatrix(t)
	for _, name := range []string{
		"031-dual-dns-off-globally-on-pod", "032-dual-dns-on-globally-off-pod", "034-v4-in-dual-pod",
		"035-dual-lo-ipv6-disabled", "037-virt-plus-suffix", "038-virt-star-suffix",
		"043-virt-plus-in-exact", "050-seq-add-twice", "053-seq-dns-to-nodns-reconcile",
		"054-seq-dns-to-nodns-noreconcile", "056-seq-dual-to-v4-reconcile",
		"059-seq-virt-changed-reconcile", "060-foreign-rules-present", "061-seq-same-again",
	} {
		runs = append(runs, filepath.Join(ambientDir(t), name))
	}
	for _, run := range rulestest.Sample(runs, os.Getenv) {
		t.Run(filepath.Base(run), func(t *testing.T) {
			a := recordedAmbient(t, run)
			deviation := ambientDeviations[filepath.Base(run)]
			if !a.IPv6 {
				deviation.nft, deviation.reason = onlyIPv6, "deviation "+string(rules.AmbientIPv6)
			}
			sluice := compileAmbient(t, a)
			wantDifferentOnlyIn(t, "iptables", sluice, recordedLegacy(t, run), deviation.legacy,
				deviation.reason)
			wantDifferentOnlyIn(t, "nftables", sluice, recordedNFT(t, run), deviation.nft,
				deviation.reason)
		})
	}
}

// Without IPv6, Istio's nftables backend still treats IPv6 packets differently. This is a known
// deviation.
func TestNFTablesWithoutIPv6IsAKnownDeviation(t *testing.T) {
	for _, run := range rulestest.Sample(ambientMatrix(t), os.Getenv) {
		a := recordedAmbient(t, run)
		if a.IPv6 {
			continue
		}
		r := diff.Decide(diff.Side{Ruleset: compileAmbient(t, a), RoutingKnown: true, Ambient: &a},
			diff.Side{Ruleset: recordedNFT(t, run)}, diff.Options{})
		if r.Verdict() != diff.Equivalent || r.StrictVerdict() != diff.Different {
			t.Errorf("%s: verdict %s, strictly %s; want %s, strictly %s\n%v", filepath.Base(run),
				r.Verdict(), r.StrictVerdict(), diff.Equivalent, diff.Different, r.Classes)
		}
		for _, c := range r.Classes {
			if !slices.Equal(c.Deviations, []rules.DeviationID{rules.AmbientIPv6}) {
				t.Errorf("%s: %v: deviations %v, want only %s", filepath.Base(run), c.Packets,
					c.Deviations, rules.AmbientIPv6)
			}
		}
	}
}

// wantDifferentOnlyIn fails unless the rulesets differ in exactly these families. The message
// contains the reason for the expected difference.
func wantDifferentOnlyIn(
	t testing.TB, backend string, sluice, istio rules.Ruleset, families []rules.Family,
	reason string,
) {
	t.Helper()
	for _, f := range bothFamilies {
		r := diff.Decide(diff.Side{Ruleset: sluice, RoutingKnown: true}, diff.Side{Ruleset: istio},
			diff.Options{Families: []rules.Family{f}})
		want, expectation := diff.Equivalent, ""
		if slices.Contains(families, f) {
			want, expectation = diff.Different, " ("+reason+")"
		}
		if v := r.StrictVerdict(); v != want {
			t.Errorf("%s, IPv%d: verdict %s, want %s%s\n%v\n%v", backend, f, v, want, expectation,
				r.Classes, r.Undecided)
		}
	}
}

// Istio's agent copies an annotation's text into its rules. Sluice rejects names that no interface
// can have.
func TestAmbientRejectsRecordedInvalidInterfaceNames(t *testing.T) {
	for _, name := range []string{
		"039-virt-16-chars", "040-virt-with-blank", "041-virt-newline", "042-virt-newline-nft",
	} {
		var step recordedStep
		text := readText(t, filepath.Join(ambientDir(t), name, "args.json"))
		if err := json.Unmarshal([]byte(text), &step); err != nil {
			t.Fatal(err)
		}
		if names, err := rules.ParseInterfaces(strings.Join(step.Interfaces, ",")); err == nil {
			t.Errorf("%s: %q is accepted, want an error", name, names)
		}
	}
}
