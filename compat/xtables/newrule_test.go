package xtables

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// someRules returns rules with all kinds of targets, and the same rules as text for
// iptables-restore.
func someRules(t testing.TB, f rules.Family) (list []Rule, text string) {
	t.Helper()
	addr := func(ipv4, ipv6 string) Address {
		p := netip.MustParsePrefix(map[rules.Family]string{rules.IPv4: ipv4, rules.IPv6: ipv6}[f])
		mask, _ := netip.AddrFromSlice(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
		return Address{p.Addr(), mask}
	}
	anywhere := Header{}
	tcp := Header{Protocol: 6}
	if f == rules.IPv6 {
		tcp.Flags = FlagProtocol6
	}
	full := tcp
	full.In, full.Out = must(NamedInterface("fifteen-letters", false)),
		must(NamedInterface("lo", false))
	full.Source, full.Destination = addr("10.0.0.0/8", "fd00::/8"),
		addr("192.0.2.1/32", "fd00::1/128")
	full.Invert = InvertIn | InvertDestination
	dport := xt.Extension{
		Name: "tcp", Data: slices.Concat([]byte{0, 0, 255, 255, 80, 0, 80, 0}, make([]byte, 4)),
	}
	mark := xt.Extension{Name: "mark", Revision: 1, Data: []byte{1, 0, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0}}
	setMark := xt.Extension{Name: "MARK", Revision: 2, Data: []byte{5, 0, 0, 0, 255, 255, 255, 255}}
	for _, r := range []struct {
		header  Header
		matches []xt.Extension
		target  Target
	}{
		{anywhere, nil, Target{}},
		{full, []xt.Extension{dport, mark}, Target{Verdict: Accept}},
		{tcp, []xt.Extension{dport}, Target{Chain: "SECOND"}},
		{tcp, nil, Target{Chain: "SECOND", Goto: true}},
		{anywhere, []xt.Extension{mark}, Target{Extension: setMark}},
		{anywhere, nil, Target{Verdict: Drop}},
		{anywhere, nil, Target{Verdict: Return}},
	} {
		list = append(list, must(NewRule(f, r.header, r.matches, r.target)))
	}
	source, destination := "10.0.0.0/8", "192.0.2.1/32"
	if f == rules.IPv6 {
		source, destination = "fd00::/8", "fd00::1/128"
	}
	for _, words := range []string{
		"",
		"! -i fifteen-letters -o lo -s " + source + " ! -d " + destination +
			" -p tcp -m tcp --dport 80 -m mark ! --mark 1/15 -j ACCEPT",
		"-p tcp -m tcp --dport 80 -j SECOND", "-p tcp -g SECOND",
		"-m mark ! --mark 1/15 -j MARK --set-mark 5", "-j DROP", "-j RETURN",
	} {
		text += "[0:0] -A FIRST " + words + "\n"
	}
	return list, text
}

// NewRule returns the same bytes as iptables writes for the same rule.
func TestNewRulesEqualIptablesRules(t *testing.T) {
	for _, f := range istiotest.Families {
		t.Run(f.String(), func(t *testing.T) {
			sluiceNS, iptablesNS := netnstest.New(t), netnstest.New(t)
			list, text := someRules(t, f)
			table := must(Open(sluiceNS, f, "mangle"))
			must(table.AddChains("FIRST", "SECOND"))
			table.Chain("FIRST").Rules = list
			out := table.Chain("OUTPUT")
			out.Rules = append(out.Rules, must(NewRule(f, Header{}, nil, Target{Chain: "FIRST"})))
			if err := Replace(sluiceNS, table); err != nil {
				t.Fatal(err)
			}
			chains := "*mangle\n:FIRST - [0:0]\n:SECOND - [0:0]\n[0:0] -A OUTPUT -j FIRST\n"
			istiotest.Restore(t, iptablesNS, istiotest.Legacy, f, chains+text+"COMMIT\n")
			want, got := must(Read(iptablesNS, f, "mangle")), must(Read(sluiceNS, f, "mangle"))
			if !want.layout.equal(want.origin, got.origin) {
				dump := func(t *Table) string { return hex.Dump(t.layout.withoutKernelFields(t.origin.entries)) }
				t.Errorf("entries (-want +got):\n%s", cmp.Diff(dump(want), dump(got)))
			}
			if diff := cmp.Diff(istiotest.Dump(t, iptablesNS, istiotest.Legacy),
				istiotest.Dump(t, sluiceNS, istiotest.Legacy)); diff != "" {
				t.Errorf("output of iptables-save (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewRuleBytes verifies all bytes of an IPv4 rule. at contains the bytes that are not 0.
func TestNewRuleBytes(t *testing.T) {
	h := Header{
		Protocol: 6, Invert: InvertOut, In: must(NamedInterface("lo", false)),
		Out: must(NamedInterface("eth", true)),
	}
	h.Destination = Address{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("255.0.0.0")}
	r := must(NewRule(rules.IPv4, h,
		[]xt.Extension{{Name: "mark", Revision: 1, Data: []byte{1, 2, 3}}},
		Target{Chain: "X", Goto: true}))
	at := map[int]string{
		// addresses, address masks, interface names, interface masks
		4: "0a000000", 12: "ff000000", 16: "6c6f", 32: "657468", 48: "ffffff", 64: "ffffff",
		80: "0600", 82: "02", 83: "02", // protocol, flags (goto), inversion flags
		88: "9800", 90: "c000", // offset of the target, size
		// the match: size, name, revision
		112: "28006d61726b", 143: "01", 144: "010203",
		152: "2800", // the target: a jump, whose offset is not known yet
	}
	want := make([]byte, 192)
	for n, text := range at {
		copy(want[n:], must(hex.DecodeString(text)))
	}
	if !bytes.Equal(r.entry, want) {
		t.Errorf("-want +got:\n%s", cmp.Diff(hex.Dump(want), hex.Dump(r.entry)))
	}
}

func TestNewRuleRejectsInvalidRules(t *testing.T) {
	long := xt.Extension{Name: "comment", Data: make([]byte, 40000)}
	for _, tc := range []struct {
		name    string
		family  rules.Family
		header  Header
		matches []xt.Extension
		target  Target
		want    string
	}{
		{"a family without tables", rules.Inet, Header{}, nil, Target{}, "iptables has no tables of family inet"},
		{
			"a name without space for the terminating zero", rules.IPv4,
			Header{},
			[]xt.Extension{{Name: strings.Repeat("x", 29)}},
			Target{},
			"is not a name of a match or target",
		},
		{
			"a jump with a verdict", rules.IPv4,
			Header{},
			nil,
			Target{Chain: "X", Verdict: Drop},
			"a rule must have at most one of chain, extension and verdict",
		},
		{
			"a target with a verdict", rules.IPv4,
			Header{},
			nil,
			Target{Extension: xt.Extension{Name: "LOG"}, Verdict: Drop},
			"a rule must have at most one of chain, extension and verdict",
		},
		{
			"an entry larger than the size field allows", rules.IPv4,
			Header{},
			[]xt.Extension{long, long},
			Target{},
			"bytes, more than the maximum of 65535",
		},
		{
			"an address of another family", rules.IPv6,
			Header{Source: Address{Addr: netip.MustParseAddr("10.0.0.1")}},
			nil,
			Target{},
			"10.0.0.1 is not allowed in a rule of family ip6",
		},
	} {
		if _, err := NewRule(tc.family, tc.header, tc.matches, tc.target); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
	for _, name := range []string{"", "sixteen-letters-"} {
		if _, err := NamedInterface(name, true); err == nil {
			t.Errorf("NamedInterface accepts %q, want an error", name)
		}
	}
}

func TestAddChainsRejectsInvalidNames(t *testing.T) {
	table := must(decode(&layouts[0], "nat", smallTable(&layouts[0])))
	for name, want := range map[string]string{
		"FULL":                  "iptables-legacy ip nat: chain FULL already exists",
		"OUTPUT":                "iptables-legacy ip nat: chain OUTPUT already exists",
		"INPUT":                 "is not a chain name",
		"ACCEPT":                "is not a chain name",
		"ERROR":                 "is not a chain name",
		"":                      "is not a chain name",
		"a b":                   "is not a chain name",
		"-x":                    "is not a chain name",
		"a\x7fb":                "no spaces or control characters",
		strings.Repeat("x", 29): "must have 1 to 28 bytes, no spaces",
	} {
		if _, err := table.AddChains("NEW", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("chain %q: error %v, want %s", name, err, want)
		}
	}
	if table.Chain("NEW") != nil {
		t.Error("AddChains has added a chain although another name is invalid")
	}
	added, err := table.AddChains(strings.Repeat("x", 28))
	if err != nil || len(added) != 1 || added[0].Policy() != Return ||
		&added[0] != table.Chain(added[0].Name) {
		t.Errorf("chains %v, error %v, want a chain with a name of 28 bytes", added, err)
	}
}

// Open creates a missing table with empty built-in chains. The table can be edited immediately.
func TestOpenCreatesTheTable(t *testing.T) {
	chains := map[string]string{
		"raw": "PREROUTING OUTPUT", "mangle": "PREROUTING INPUT FORWARD OUTPUT POSTROUTING",
		"nat": "PREROUTING INPUT OUTPUT POSTROUTING",
	}
	for _, f := range istiotest.Families {
		for name, want := range chains {
			ns := netnstest.New(t)
			table := must(Open(ns, f, name))
			var got []string
			for _, c := range table.Chains {
				got = append(got, c.Name)
				if c.Policy() != Accept || len(c.Rules) > 0 {
					t.Errorf("%s: chain %s has policy %d and %d rules, want ACCEPT and none", table,
						c.Name, c.Policy(), len(c.Rules))
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: chains %q, want %s", table, got, want)
			}
			if ids := must(Tables(ns)); len(ids) != 1 || ids[0] != (ID{f, name}) {
				t.Errorf("tables %v, want only %v", ids, ID{f, name})
			}
			addReturn(t, ns, table)
			if n := len(must(Open(ns, f, name)).Chain("OUTPUT").Rules); n != 1 {
				t.Errorf("%s: OUTPUT has %d rules, want 1", table, n)
			}
		}
	}
}

// addReturn appends a rule to OUTPUT, and writes the table.
func addReturn(t *testing.T, ns *netns.NS, table *Table) {
	t.Helper()
	c := table.Chain("OUTPUT")
	c.Rules = append(c.Rules, must(NewRule(table.Family, Header{}, nil, Target{Verdict: Return})))
	if err := Replace(ns, table); err != nil {
		t.Fatal(err)
	}
}

// Existing rules keep their counters if a rule is added between them.
func TestNewRulesKeepTheCountersOfOtherRules(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
		"*mangle\n:OUTPUT ACCEPT [7:70]\n:OTHERS - [0:0]\n"+
			"[1:10] -A OUTPUT -o eth1\n[2:20] -A OUTPUT -j OTHERS\n[3:30] -A OTHERS -o eth2\nCOMMIT\n")
	table := must(Read(ns, rules.IPv4, "mangle"))
	must(table.AddChains("OURS"))
	out := table.Chain("OUTPUT")
	out.Rules = slices.Insert(out.Rules, 1,
		must(NewRule(rules.IPv4, Header{}, nil, Target{Chain: "OURS"})))
	if err := Replace(ns, table); err != nil {
		t.Fatal(err)
	}
	want := ":OUTPUT ACCEPT [7:70]\n:POSTROUTING ACCEPT [0:0]\n:OTHERS - [0:0]\n:OURS - [0:0]\n" +
		"[1:10] -A OUTPUT -o eth1\n[0:0] -A OUTPUT -j OURS\n[2:20] -A OUTPUT -j OTHERS\n[3:30] -A OTHERS -o eth2\n"
	if got := istiotest.Save(t, ns, istiotest.Legacy, rules.IPv4); !strings.Contains(got, want) {
		t.Errorf("want the lines\n%s\nin:\n%s", want, got)
	}
}
