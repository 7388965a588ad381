package xtables_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

const legacy = "iptables-legacy ip "

// foreign returns a namespace with all kinds of rules of other programs.
func foreign(t testing.TB) *netns.NS {
	t.Helper()
	return istiotest.Load(t, istiotest.Legacy, istiotest.Case{})
}

func read(t testing.TB, ns *netns.NS, family rules.Family, name string) *xtables.Table {
	t.Helper()
	table, err := xtables.Read(ns, family, name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func tables(t testing.TB, ns *netns.NS) []string {
	t.Helper()
	list, err := xtables.Tables(ns)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, id := range list {
		names = append(names, id.String())
	}
	return names
}

func TestReadingCreatesNoTable(t *testing.T) {
	ns := netnstest.New(t)
	for range 2 {
		if got := tables(t, ns); len(got) > 0 {
			t.Fatalf("tables %q in a new namespace, want none", got)
		}
		_, err := xtables.Read(ns, rules.IPv4, "nat")
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), legacy+"nat: read") {
			t.Errorf("error %v, want an error about a missing table", err)
		}
	}
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv6, "*raw\nCOMMIT\n*mangle\nCOMMIT\n")
	want := []string{"iptables-legacy ip6 mangle", "iptables-legacy ip6 raw"}
	if diff := cmp.Diff(want, tables(t, ns)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReplaceWithoutEditChangesNothing(t *testing.T) {
	ns := foreign(t)
	before := istiotest.Dump(t, ns, istiotest.Legacy)
	ids, err := xtables.Tables(ns)
	if err != nil || len(ids) != 8 { // nat, mangle, raw and filter of both families
		t.Fatalf("tables %v, error %v, want 8 tables", ids, err)
	}
	for _, id := range ids {
		table := read(t, ns, id.Family, id.Name)
		for range 3 { // a table is valid again after Replace
			if err := xtables.Replace(ns, table); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func TestDeleteChainAndRules(t *testing.T) {
	ns := foreign(t)
	table := read(t, ns, rules.IPv4, "nat")
	table.DeleteChains(func(name string) bool { return name == "PORTMAP" || name == "OUTPUT" })
	if table.Chain("PORTMAP") != nil || table.Chain("OUTPUT") == nil {
		t.Error("want the user-defined chain PORTMAP deleted, and the built-in chain OUTPUT kept")
	}
	err := xtables.Replace(ns, table)
	if want := legacy + "nat: chain PREROUTING: rule 2: jump to chain PORTMAP, which does not exist"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for i := range table.Chains {
		c := &table.Chains[i]
		kept := c.Rules[:0]
		for _, r := range c.Rules {
			if chain, _ := r.Jump(); chain != "PORTMAP" {
				kept = append(kept, r)
			}
		}
		c.Rules = kept
	}
	if err := xtables.Replace(ns, table); err != nil {
		t.Fatal(err)
	}
	want := "*nat\n" +
		":PREROUTING ACCEPT [18:1800]\n:INPUT ACCEPT [19:1900]\n:OUTPUT ACCEPT [20:2000]\n:POSTROUTING ACCEPT [21:2100]\n" +
		":MY_ISTIO_OUTPUT - [0:0]\n:istio_output - [0:0]\n" +
		"[104:10400] -A PREROUTING -i eth7 -j RETURN\n" +
		"[17:117] -A PREROUTING -i eth9 -j RETURN\n" +
		"[105:10500] -A PREROUTING -i eth6 -j RETURN\n" +
		"[106:10600] -A OUTPUT -o eth7 -j RETURN\n" +
		"[18:118] -A OUTPUT -o eth9 -j RETURN\n" +
		"[107:10700] -A OUTPUT -o eth6 -j RETURN\n" +
		"[108:10800] -A OUTPUT -p tcp -m tcp --dport 15008 -j RETURN\n" +
		"[20:120] -A POSTROUTING -s 10.244.0.0/16 ! -d 10.0.0.0/8 -o eth0 -j MASQUERADE --random-fully\n" +
		"[34:134] -A POSTROUTING -p udp -m comment --comment \"counts only\"\n" +
		"[21:121] -A MY_ISTIO_OUTPUT -p tcp -j istio_output\n" +
		"[24:124] -A istio_output -j RETURN\n" +
		"COMMIT\n"
	if got := istiotest.Save(t, ns, istiotest.Legacy, rules.IPv4); !strings.Contains(got, want) {
		t.Errorf("want the lines\n%s\nin:\n%s", want, got)
	}
}

func TestReplaceRejectsATableThatHasChanged(t *testing.T) {
	for _, tc := range []struct{ name, change string }{
		{"an added rule", "*nat\n[0:0] -A OUTPUT -j RETURN\nCOMMIT\n"},
		{"a deleted rule", "*nat\n-D OUTPUT 1\nCOMMIT\n"},
		{"a replaced rule", "*nat\n[0:0] -R OUTPUT 1 -o eth5 -j RETURN\nCOMMIT\n"},
		{"another policy", "*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := foreign(t)
			table := read(t, ns, rules.IPv4, "nat")
			istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, tc.change)
			before := istiotest.Dump(t, ns, istiotest.Legacy)
			table.Chain("OUTPUT").Rules = nil
			if err := xtables.Replace(ns, table); !errors.Is(err, xtables.ErrChanged) {
				t.Errorf("error %v, want %v", err, xtables.ErrChanged)
			}
			if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

func TestReadDecodesRules(t *testing.T) {
	ns := foreign(t)
	table := read(t, ns, rules.IPv4, "filter")
	if got := table.Chain("INPUT").Policy(); got != xtables.Drop {
		t.Errorf("policy %d, want %d", got, xtables.Drop)
	}
	r := table.Chain("INPUT").Rules[2] // -p tcp -m comment --comment "counts only"
	h := r.Header()
	verdict, isVerdict := r.Verdict()
	if h.Protocol != unix.IPPROTO_TCP || h.Invert != 0 || h.In != (xtables.Interface{}) ||
		verdict != xtables.Continue || !isVerdict {
		t.Errorf("header %+v, verdict %d, want TCP and verdict %d", h, verdict, xtables.Continue)
	}
	if m := r.Matches(); len(m) != 1 || m[0].Name != "comment" ||
		!strings.HasPrefix(string(m[0].Data), "counts only\x00") {
		t.Errorf(`matches %v, want the comment "counts only"`, m)
	}
	if want := (rules.Hits{Packets: 27, Bytes: 127}); r.Hits() != want {
		t.Errorf("counter %v, want %v", r.Hits(), want)
	}
	r = table.Chain("INPUT").Rules[3]
	if chain, isGoto := r.Jump(); chain != "GUARD" || isGoto {
		t.Errorf("jump to %q, goto %v, want a jump to GUARD", chain, isGoto)
	}
	r = table.Chain("OUTPUT").Rules[0] // ! -o lo
	if h := r.Header(); h.Invert != xtables.InvertOut || string(h.Out.Name[:3]) != "lo\x00" ||
		string(h.Out.Mask[:4]) != "\xff\xff\xff\x00" {
		t.Errorf("header %+v, want ! -o lo", h)
	}
	r = table.Chain("GUARD").Rules[3] // -s 192.0.2.0/24 -j REJECT
	h = r.Header()
	if h.Source.Addr.String() != "192.0.2.0" || h.Source.Mask.String() != "255.255.255.0" ||
		r.Target().Name != "REJECT" {
		t.Errorf("header %+v, target %v, want -s 192.0.2.0/24 -j REJECT", h, r.Target())
	}
	if _, isVerdict := r.Verdict(); isVerdict {
		t.Error("Verdict returns true for a rule with the target REJECT")
	}
	r = read(t, ns, rules.IPv6, "nat").Chain("PORTMAP").Rules[1] // -g
	if chain, isGoto := r.Jump(); chain != "MY_ISTIO_OUTPUT" || !isGoto {
		t.Errorf("jump to %q, goto %v, want a goto to MY_ISTIO_OUTPUT", chain, isGoto)
	}
	if h := r.Header(); h.Protocol != unix.IPPROTO_TCP || h.Flags != xtables.FlagProtocol6|
		xtables.FlagGoto6 {
		t.Errorf("header %+v, want TCP with the flags of a protocol and a goto", h)
	}
}

func TestReplaceLeaksNoDescriptor(t *testing.T) {
	ns := foreign(t)
	table := read(t, ns, rules.IPv4, "nat")
	descriptors := netnstest.Descriptors(t)
	for range 100 {
		if err := xtables.Replace(ns, table); err != nil {
			t.Fatal(err)
		}
	}
	if got := netnstest.Descriptors(t); got > descriptors {
		t.Errorf("%d open descriptors before the replacements, %d after them, want no more", descriptors,
			got)
	}
}
