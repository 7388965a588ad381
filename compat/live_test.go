package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

var families = []rules.Family{rules.IPv4, rules.IPv6}

func readLive(t testing.TB, ns *netns.NS, origin compat.Origin) compat.Live {
	t.Helper()
	live, err := compat.ReadLive(ns, origin)
	if err != nil {
		t.Fatal(err)
	}
	return live
}

func nftables(t testing.TB, ns *netns.NS, text string) {
	t.Helper()
	istiotest.Run(t, ns, text, "nft", "-f", "-")
}

// TestLiveTablesAreAttributedToTheirPrograms reads tables of all programs in one namespace.
func TestLiveTablesAreAttributedToTheirPrograms(t *testing.T) {
	ns := netnstest.New(t)
	for _, f := range families {
		istiotest.Restore(t, ns, istiotest.Legacy, f,
			"*nat\n-A OUTPUT -j RETURN\nCOMMIT\n*filter\nCOMMIT\n")
		istiotest.Restore(t, ns, istiotest.NFT, f,
			"*nat\n:CHAIN - [0:0]\n-A OUTPUT -j CHAIN\n-A INPUT -j RETURN\n-A POSTROUTING -j RETURN\nCOMMIT\n"+
				"*mangle\n-A PREROUTING -j RETURN\n-A OUTPUT -j RETURN\nCOMMIT\n*raw\n-A OUTPUT -j RETURN\nCOMMIT\n"+
				"*filter\n-A FORWARD -j RETURN\nCOMMIT\n*security\n-A INPUT -j RETURN\nCOMMIT\n")
	}
	nftables(t, ns, `
		table inet nat { chain OUTPUT { type nat hook output priority -100; }; }
		table ip others { chain OUTPUT { type nat hook output priority -100; }; }
	`)
	if _, err := nft.Apply(ns, compiled(t)); err != nil {
		t.Fatal(err)
	}
	const iptablesNFT, iptablesLegacy = "ip nat, ip mangle, ip raw, ip filter, ip security, ip6 nat, ip6 mangle, ip6 raw, ip6 filter, ip6 security",
		"ip filter, ip nat, ip6 filter, ip6 nat"
	const nativeNFT = "inet sluice, ip others, inet nat"
	for origin, want := range map[compat.Origin]string{
		compat.OriginNFT: nativeNFT, compat.OriginIPTablesNFT: iptablesNFT, compat.OriginLegacy: iptablesLegacy,
		compat.OriginAll:      nativeNFT + ", " + iptablesNFT + ", " + iptablesLegacy,
		compat.OriginNFTables: nativeNFT + ", " + iptablesNFT,
	} {
		live := readLive(t, ns, origin)
		var got []string
		for _, table := range live.Ruleset.Tables {
			got = append(got, table.Family.String()+" "+table.Name)
			wantComment := map[compat.Origin]string{
				compat.OriginIPTablesNFT: "iptables-nft", compat.OriginLegacy: "iptables-legacy",
			}[origin]
			if wantComment != "" && table.Comment != wantComment {
				t.Errorf("table %s has comment %q, want %q", table.Name, table.Comment, wantComment)
			}
		}
		if diff := cmp.Diff(sorted(strings.Split(want, ", ")), sorted(got)); diff != "" {
			t.Errorf("origin %q, -want +got\n%s", origin, diff)
		}
	}
	if _, err := compat.ReadLive(ns, "iptables"); err == nil ||
		!strings.Contains(err.Error(), `"iptables" is not an origin`) {
		t.Errorf("an unknown origin: error %v, want an error that names it", err)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// TestTableNamedLikeIptablesIsNotIptables reads tables that have the name of a table of iptables,
// but differ in another property.
func TestTableNamedLikeIptablesIsNotIptables(t *testing.T) {
	for name, text := range map[string]string{
		"chain names in lower case": "table ip nat { chain output { type nat hook output priority -100; }; }",
		"another priority":          "table ip nat { chain OUTPUT { type nat hook output priority -101; }; }",
		"another type":              "table ip mangle { chain OUTPUT { type filter hook output priority -150; }; }",
		"an additional chain":       "table ip raw { chain OUTPUT { type filter hook output priority -300; }; chain x { type filter hook output priority 0; }; }",
		"the hook of another chain": "table ip raw { chain OUTPUT { type filter hook prerouting priority -300; }; }",
		"another family":            "table inet raw { chain OUTPUT { type filter hook output priority -300; }; }",
	} {
		ns := netnstest.New(t)
		nftables(t, ns, text)
		if live := readLive(t, ns, compat.OriginIPTablesNFT); len(live.Ruleset.Tables) > 0 {
			t.Errorf("%s: the table is attributed to iptables-nft, want nft", name)
		}
		if live := readLive(t, ns, compat.OriginNFT); len(live.Ruleset.Tables) != 1 {
			t.Errorf("%s: the table is not attributed to nft", name)
		}
	}
}

// TestCommentsOfTablesIdentifyNoProgram reads tables whose comments are the names of the variants
// of iptables.
func TestCommentsOfTablesIdentifyNoProgram(t *testing.T) {
	ns := netnstest.New(t)
	nftables(t, ns, `
		table ip a { comment "iptables-legacy"; chain OUTPUT { type filter hook output priority 0; }; }
		table ip b { comment "iptables-nft"; chain OUTPUT { type filter hook output priority 0; }; }
	`)
	for _, table := range readLive(t, ns, compat.OriginAll).Ruleset.Tables {
		if compat.IsLegacyTable(&table) || table.Comment != "" {
			t.Errorf("table %s is a table of iptables-legacy (%t) or has the comment %q, want neither",
				table.Name, compat.IsLegacyTable(&table), table.Comment)
		}
	}
}

// TestReadLiveCreatesNothing reads a namespace without tables, and one with some tables.
func TestReadLiveCreatesNothing(t *testing.T) {
	ns := netnstest.New(t)
	listTables := func() string {
		var text []byte
		err := ns.Do(func() error {
			for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
				names, err := os.ReadFile("/proc/thread-self/net/" + file)
				if err != nil {
					return err
				}
				text = append(text, names...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + istiotest.Run(t, ns, "", "nft", "-s", "list", "ruleset")
	}
	if live := readLive(t, ns, compat.OriginAll); len(live.Ruleset.Tables) > 0 ||
		len(live.Ambiguous) > 0 || listTables() != "" {
		t.Errorf("ReadLive returns %v in a namespace without rules, and leaves tables %q; want nothing", live,
			listTables())
	}
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv6, "*mangle\n-A OUTPUT -j RETURN\nCOMMIT\n")
	istiotest.Restore(t, ns, istiotest.NFT, rules.IPv4, "*raw\n-A OUTPUT -j RETURN\nCOMMIT\n")
	before := listTables()
	readLive(t, ns, compat.OriginAll)
	if diff := cmp.Diff(before, listTables()); diff != "" {
		t.Errorf("ReadLive changed the tables: -before +after\n%s", diff)
	}
}

// TestLiveRulesEqualTheirText loads the output of istio-iptables with both variants of iptables.
// The kernel's rules and the text must yield the same model.
func TestLiveRulesEqualTheirText(t *testing.T) {
	for variant, origin := range map[istiotest.Variant]compat.Origin{
		istiotest.Legacy: compat.OriginLegacy, istiotest.NFT: compat.OriginIPTablesNFT,
	} {
		for _, c := range istiotest.Cases(t, variant) {
			t.Run(string(origin)+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				sameAsText(t, variant, origin, map[rules.Family]string{
					rules.IPv4: c.IPv4, rules.IPv6: c.IPv6,
				})
			})
		}
	}
}

// TestTypicalRulesEqualTheirText is TestLiveRulesEqualTheirText for a text with all kinds of
// matches and actions that the model can express.
func TestTypicalRulesEqualTheirText(t *testing.T) {
	for _, f := range families {
		name := map[rules.Family]string{rules.IPv4: "live-v4.save", rules.IPv6: "live-v6.save"}[f]
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for variant, origin := range map[istiotest.Variant]compat.Origin{
			istiotest.Legacy: compat.OriginLegacy, istiotest.NFT: compat.OriginIPTablesNFT,
		} {
			t.Run(f.String()+"/"+string(origin), func(t *testing.T) {
				sameAsText(t, variant, origin, map[rules.Family]string{f: string(text)})
			})
		}
	}
}

// sameAsText loads a text for each family. The rules of the kernel must equal the text and contain
// nothing unknown.
func sameAsText(
	t *testing.T, variant istiotest.Variant, origin compat.Origin, texts map[rules.Family]string,
) {
	t.Helper()
	ns := netnstest.New(t)
	var want []rules.Table
	for _, f := range families {
		if texts[f] == "" {
			continue
		}
		istiotest.Restore(t, ns, variant, f, texts[f])
		tables, err := save.Parse(f, "text", strings.NewReader(texts[f]))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, tables...)
	}
	live := readLive(t, ns, origin)
	got := rules.Ruleset{Tables: live.Ruleset.Tables}
	for _, d := range rules.Compare(rules.Ruleset{Tables: want}, got) {
		// The kernel also has empty chains that the text does not name.
		if d.Kind != rules.Extra || !strings.HasPrefix(d.Got, "chain ") {
			t.Errorf("the rules of the kernel differ from the text: %s", d)
		}
	}
	wantKnown(t, got)
	if len(live.Ambiguous) > 0 {
		t.Errorf("ambiguous chains %v, want none", live.Ambiguous)
	}
}

// wantKnown verifies that the model can express all rules.
func wantKnown(t testing.TB, rs rules.Ruleset) {
	t.Helper()
	for line := range strings.Lines(rs.String()) {
		if strings.Contains(line, "unknown(") {
			t.Errorf("the model cannot express a rule: %s", line)
		}
	}
}

// TestTablesOfIstioNFTablesAreKnown loads the nft commands of istio-nftables, and the commands of
// recorded runs if there are any.
func TestTablesOfIstioNFTablesAreKnown(t *testing.T) {
	golden := os.Getenv("SLUICE_GOLDEN")
	if golden == "" {
		golden = "../../shared/golden"
	}
	for _, pattern := range []string{
		"../nft/testdata/istio-*.nft", filepath.Join(golden, "*", "nft-tx.txt"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				ns := netnstest.New(t)
				out, err := istiotest.TryRun(t, ns, string(text), "nft", "-f", "-")
				if err != nil && strings.HasPrefix(file, golden) {
					t.Skipf("nft rejects the recorded commands: %s", out)
				}
				if err != nil {
					t.Fatalf("nft rejects the commands: %s", out)
				}
				live := readLive(t, ns, compat.OriginNFT)
				wantKnown(t, live.Ruleset)
				if strings.Contains(string(text), "add rule") && len(live.Ruleset.Tables) == 0 {
					t.Error("ReadLive returns no table, want the tables of the commands")
				}
			})
		}
	}
}

// TestReadLiveReturnsAConsistentState calls ReadLive while a program replaces iptables-legacy
// tables, first mangle and then raw. No result may contain a raw table that is newer than its
// mangle table, although ReadLive reads mangle first.
func TestReadLiveReturnsAConsistentState(t *testing.T) {
	ns := netnstest.New(t)
	write := func(n int) error {
		rule := fmt.Sprintf("-A OUTPUT -m mark --mark %d\nCOMMIT\n", n)
		_, err := istiotest.TryRun(t, ns, "*mangle\n"+rule+"*raw\n"+rule, "iptables-legacy-restore")
		return err
	}
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 2; (n < 60 || reads.Load() < 5) && !t.Failed(); n++ {
			if err := write(n); err != nil {
				t.Error(err)
			}
		}
	}()
	defer func() { <-done }()
	for writing := true; writing; reads.Add(1) {
		select {
		case <-done:
			writing = false
		default:
		}
		marks := map[string]uint32{}
		for _, table := range readLive(t, ns, compat.OriginAll).Ruleset.Tables {
			marks[table.Name] = table.Chain("OUTPUT").Rules[0].Matches[0].(rules.MatchMark).Value
		}
		if marks["raw"] > marks["mangle"] || marks["mangle"] > marks["raw"]+1 {
			t.Fatalf("mangle has version %d, and raw version %d; want raw equal to mangle or older by one",
				marks["mangle"], marks["raw"])
		}
	}
}

// TestReadLiveLeavesNothingOpen compares the number of descriptors before and after calls of
// ReadLive.
func TestReadLiveLeavesNothingOpen(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, "*nat\n-A OUTPUT -j RETURN\nCOMMIT\n")
	countDescriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	readLive(t, ns, compat.OriginAll) // the first call starts the runtime's poller
	before := countDescriptors()
	for range 20 {
		readLive(t, ns, compat.OriginAll)
	}
	if after := countDescriptors(); after > before {
		t.Errorf("%d descriptors before, %d after, want no more than before", before, after)
	}
}
