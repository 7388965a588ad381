package compat

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// The rules as people write them, and what they are in the model.
func TestDecodeRules(t *testing.T) {
	for _, tc := range []struct {
		family rules.Family
		rule   string
		want   string
	}{
		{rules.IPv4, "", "counter"},
		{rules.IPv4, "-j ACCEPT", "counter accept"},
		{rules.IPv4, "-j DROP", "counter drop"},
		{rules.IPv4, "-j RETURN", "counter return"},
		{rules.IPv4, "-j CHAIN", "counter jump CHAIN"},
		{rules.IPv4, "-g CHAIN", "counter goto CHAIN"},
		{rules.IPv4, "-i eth1 -j RETURN", `iifname "eth1" counter return`},
		{rules.IPv4, "! -i eth1 -j RETURN", `iifname != "eth1" counter return`},
		{rules.IPv4, "-o tap+ -j RETURN", `oifname "tap*" counter return`},
		{rules.IPv4, "-i a23456789012345 -o b2345678901234+", `iifname "a23456789012345" oifname "b2345678901234*" counter`},
		{rules.IPv4, "-p tcp", "meta l4proto tcp counter"},
		{rules.IPv4, "! -p 200", "meta l4proto != 200 counter"},
		{rules.IPv4, "-s 10.0.0.1 ! -d 127.0.0.0/8", "ip saddr 10.0.0.1 ip daddr != 127.0.0.0/8 counter"},
		{rules.IPv4, "-s 10.0.0.1/255.0.0.255", "unknown(address 10.0.0.1 in the bits of 255.0.0.255) counter"},
		{rules.IPv4, "-f", "unknown(flags 0x1, inverted 0x0) counter"},
		{rules.IPv4, "! -f", "unknown(flags 0x1, inverted 0x20) counter"},
		{rules.IPv4, "-p tcp -m mark --mark 0x539 -j CONNMARK --save-mark", "meta l4proto tcp meta mark 0x539 counter ct mark set meta mark"},
		{
			rules.IPv4, "-p tcp -m connmark ! --mark 1/3 -j CONNMARK --restore-mark",
			"meta l4proto tcp ct mark & 0x3 != 0x1 counter meta mark set ct mark",
		},
		{
			rules.IPv4, "-o lo -m owner --uid-owner 7-9 ! --gid-owner 3 -j MARK --set-mark 0x53a",
			`oifname "lo" meta skuid 7-9 meta skgid != 3 counter meta mark set 0x53a`,
		},
		{rules.IPv4, "-j MARK --set-xmark 1/2", "counter unknown(target MARK revision 2)"},
		{
			rules.IPv4, "-p udp -m udp --dport 53 -j TTL --ttl-set 3",
			"meta l4proto udp unknown(match udp revision 0) counter unknown(target TTL revision 0)",
		},
		{
			rules.IPv6, "-i lo -s fd00::/8 ! -d ::1 -p tcp -g CHAIN",
			`iifname "lo" ip6 saddr fd00::/8 ip6 daddr != ::1 meta l4proto tcp counter goto CHAIN`,
		},
		{rules.IPv6, "! -p udp", "meta l4proto != udp counter"},
		{rules.IPv6, "-j MARK --set-mark 5", "counter meta mark set 0x5"},
	} {
		t.Run(tc.family.String()+" "+tc.rule, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Restore(t, ns, istiotest.Legacy, tc.family, "*mangle\n:CHAIN - [0:0]\n:RULES - [0:0]\n[3:99] -A RULES "+tc.rule+"\nCOMMIT\n")
			table, err := xtables.Read(ns, tc.family, "mangle")
			if err != nil {
				t.Fatal(err)
			}
			r := decode(table).Chain("RULES").Rules[0]
			if got := r.String(); got != tc.want || r.Position != 1 || r.Hits != (rules.Hits{Packets: 3, Bytes: 99}) {
				t.Errorf("got %s, position %d, hits %v, want %s", got, r.Position, r.Hits, tc.want)
			}
		})
	}
}

func TestDecodeChains(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, "*mangle\n:OUTPUT DROP [0:0]\n:CHAIN - [0:0]\nCOMMIT\n*nat\nCOMMIT\n")
	var got []string
	for _, name := range []string{"mangle", "nat"} {
		table, err := xtables.Read(ns, rules.IPv4, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range decode(table).Chains {
			line := c.Name
			if c.Base != nil {
				line += " " + c.Base.String()
			}
			got = append(got, line)
		}
	}
	want := []string{
		"PREROUTING type filter hook prerouting priority -150; policy accept;",
		"INPUT type filter hook input priority -150; policy accept;",
		"FORWARD type filter hook forward priority -150; policy accept;",
		"OUTPUT type route hook output priority -150; policy drop;",
		"POSTROUTING type filter hook postrouting priority -150; policy accept;",
		"CHAIN",
		"PREROUTING type nat hook prerouting priority -100; policy accept;",
		"INPUT type nat hook input priority 100; policy accept;",
		"OUTPUT type nat hook output priority -100; policy accept;",
		"POSTROUTING type nat hook postrouting priority 100; policy accept;",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever bytes a rule has, nothing of it is left out: what the model cannot say is unknown.
func FuzzDecodeHeader(f *testing.F) {
	f.Add(false, []byte("eth1\x00"), []byte("\xff\xff\xff\xff\xff\x00"), []byte{10, 0, 0, 0}, []byte{255, 0, 0, 0}, uint16(6), byte(0), byte(1))
	f.Add(true, []byte("tap+"), []byte("\xff\xff\xff"), make([]byte, 16), []byte{15: 1}, uint16(300), byte(3), byte(0x7f))
	f.Fuzz(func(t *testing.T, six bool, name, nameMask, addr, addrMask []byte, protocol uint16, flags, invert byte) {
		family, size := rules.IPv4, 4
		if six {
			family, size = rules.IPv6, 16
		}
		address := func(b []byte) netip.Addr {
			fixed := make([]byte, size)
			copy(fixed, b)
			a, _ := netip.AddrFromSlice(fixed)
			return a
		}
		h := xtables.Header{Protocol: protocol, Flags: flags, Invert: invert}
		h.Source = xtables.Address{Addr: address(addr), Mask: address(addrMask)}
		h.Destination = xtables.Address{Addr: address(nil), Mask: address(nil)}
		copy(h.In.Name[:], name)
		copy(h.In.Mask[:], nameMask)
		matches := decodeHeader(family, h)
		text := (&rules.Rule{Matches: matches}).String()
		if asked := h.In.Mask != (xtables.Interface{}).Mask; asked != strings.Contains(text, "if") && !strings.Contains(text, "interface") {
			t.Errorf("interface %q %q: %s", h.In.Name, h.In.Mask, text)
		}
		if asked := !h.Source.Mask.IsUnspecified(); asked != strings.Contains(text, "addr") {
			t.Errorf("address %s %s: %s", h.Source.Addr, h.Source.Mask, text)
		}
		if invert != 0 && !strings.Contains(text, "!=") && !strings.Contains(text, "unknown") {
			t.Errorf("inverted 0x%x: %s", invert, text)
		}
	})
}
