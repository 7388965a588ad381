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

// TestDecodeRules lists rules in the syntax of iptables with their meaning in the model.
func TestDecodeRules(t *testing.T) {
	for _, tc := range []struct {
		family rules.Family
		rule   string // with -t, unless the table is mangle
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
		{
			rules.IPv4, "-i a23456789012345 -o b2345678901234+",
			`iifname "a23456789012345" oifname "b2345678901234*" counter`,
		},
		{rules.IPv4, "-p tcp", "meta l4proto tcp counter"},
		{rules.IPv4, "! -p 200", "meta l4proto != 200 counter"},
		{
			rules.IPv4, "-s 10.0.0.1 ! -d 127.0.0.0/8",
			"ip saddr 10.0.0.1 ip daddr != 127.0.0.0/8 counter",
		},
		{
			rules.IPv4, "-s 10.0.0.1/255.0.0.255",
			"unknown(source address 10.0.0.1, mask 255.0.0.255) counter",
		},
		{rules.IPv4, "! -s 0.0.0.0/0", "ip saddr != 0.0.0.0/0 counter"},
		{rules.IPv6, "! -d ::/0", "ip6 daddr != ::/0 counter"},
		{rules.IPv4, "-f", "unknown(-f) counter"},
		{rules.IPv4, "! -f", "unknown(! -f) counter"},
		{
			rules.IPv4, "-p tcp -m mark --mark 0x539 -j CONNMARK --save-mark",
			"meta l4proto tcp meta mark 0x539 counter ct mark set meta mark",
		},
		{
			rules.IPv4, "-p tcp -m connmark ! --mark 1/3 -j CONNMARK --restore-mark",
			"meta l4proto tcp ct mark & 0x3 != 0x1 counter meta mark set ct mark",
		},
		{
			rules.IPv4, "-o lo -m owner --uid-owner 7-9 ! --gid-owner 3 -j MARK --set-mark 0x53a",
			`oifname "lo" meta skuid 7-9 meta skgid != 3 counter meta mark set 0x53a`,
		},
		{
			rules.IPv4, "-j MARK --set-xmark 1/2",
			"counter meta mark set meta mark & 0xfffffffd ^ 0x1",
		},
		{
			rules.IPv4, "-p udp -m udp --dport 53 -j TTL --ttl-set 3",
			"udp dport 53 counter unknown(TTL --ttl-set 3)",
		},
		{
			rules.IPv6, "-i lo -s fd00::/8 ! -d ::1 -p tcp -g CHAIN",
			`iifname "lo" ip6 saddr fd00::/8 ip6 daddr != ::1 meta l4proto tcp counter goto CHAIN`,
		},
		{rules.IPv6, "! -p udp", "meta l4proto != udp counter"},
		{rules.IPv6, "-j MARK --set-mark 5", "counter meta mark set 0x5"},
		{rules.IPv4, "-p tcp -m tcp", "meta l4proto tcp counter"},
		{
			rules.IPv4, "-p tcp --sport 80 ! --dport 8000:9000",
			"tcp sport 80 tcp dport != 8000-9000 counter",
		},
		{rules.IPv4, "-p tcp --syn", "tcp flags & (fin | syn | rst | ack) == syn counter"},
		{
			rules.IPv4, "-p tcp ! --tcp-flags SYN,ACK SYN --dport 80",
			"tcp dport 80 tcp flags & (syn | ack) != syn counter",
		},
		{
			rules.IPv4, "-p tcp --tcp-option 8",
			"meta l4proto tcp unknown(match tcp revision 0) counter",
		},
		{rules.IPv4, "-p udp ! --sport 53", "udp sport != 53 counter"},
		{
			rules.IPv4, "-p tcp -m multiport --dports 443,80,8000:9000",
			"tcp dport { 80, 443, 8000-9000 } counter",
		},
		{rules.IPv4, "-p udp -m multiport ! --sports 1,3", "udp sport != { 1, 3 } counter"},
		{
			rules.IPv4, "-p tcp -m multiport --ports 1,3",
			"{ th sport { 1, 3 }, th dport { 1, 3 } } meta l4proto tcp counter",
		},
		{rules.IPv4, "-p sctp -m multiport --dports 1,3", "sctp dport { 1, 3 } counter"},
		{rules.IPv4, "-p sctp -m sctp --dport 1", "sctp dport 1 counter"},
		{rules.IPv4, "-m owner --socket-exists", "meta skuid 0-4294967295 counter"},
		{rules.IPv4, "-m owner ! --socket-exists", "meta skuid != 0-4294967295 counter"},
		{rules.IPv4, "-m owner --socket-exists ! --uid-owner 5", "meta skuid != 5 counter"},
		{
			rules.IPv4, "-m conntrack --ctstate RELATED,ESTABLISHED",
			"ct state established,related counter",
		},
		{
			rules.IPv4, "-m conntrack ! --ctstate INVALID,NEW,UNTRACKED",
			"ct state != new,invalid,untracked counter",
		},
		{rules.IPv4, "-m conntrack --ctstate DNAT", "ct state dnat counter"},
		{
			rules.IPv4, "-m conntrack --ctstate NEW --ctproto 6",
			"unknown(-m conntrack --ctstate NEW --ctproto 6) counter",
		},
		{rules.IPv4, "-m state --state NEW", "ct state new counter"},
		{
			rules.IPv4, "-m iprange --src-range 10.0.0.1-10.0.0.9",
			"ip saddr 10.0.0.1-10.0.0.9 counter",
		},
		{
			rules.IPv6, "-m iprange ! --dst-range fd00::1-fd00::9",
			"ip6 daddr != fd00::1-fd00::9 counter",
		},
		{rules.IPv4, "-m limit --limit 5/sec", "unknown(-m limit --limit 5/sec --limit-burst 5) counter"},
		{
			rules.IPv4, "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x539",
			"meta l4proto tcp counter TPROXY redirect 0.0.0.0:15006 mark 0x539/0xffffffff",
		},
		{
			rules.IPv6, "-p udp -j TPROXY --on-port 15006 --tproxy-mark 1/3",
			"meta l4proto udp counter TPROXY redirect 0.0.0.0:15006 mark 0x1/0x3",
		},
		{
			rules.IPv4, "-p tcp -j TPROXY --on-port 15006 --on-ip 127.0.0.1",
			"meta l4proto tcp counter TPROXY redirect 127.0.0.1:15006 mark 0x0/0x0",
		},
		{
			rules.IPv4, "-p tcp -j TPROXY --on-port 0",
			"meta l4proto tcp counter TPROXY redirect 0.0.0.0:0 mark 0x0/0x0",
		},
		{
			rules.IPv4, "-j CONNMARK --save-mark --mask 15",
			"counter ct mark set meta mark & 0xf ^ ct mark & 0xfffffff0",
		},
		{rules.IPv4, "-j LOG --log-prefix x", "counter log"},
		{rules.IPv6, "-j NFLOG --nflog-group 3", "counter log group 3"},
		{rules.IPv4, "-t raw -j TRACE", "counter meta nftrace set 1"},
		{
			rules.IPv4, "-t raw -p udp --dport 53 -j CT --zone 2",
			"udp dport 53 counter ct zone set 2",
		},
		{rules.IPv6, "-t raw -j CT --zone 1", "counter ct zone set 1"},
		{rules.IPv4, "-t raw -j CT --notrack", "counter notrack"},
		{rules.IPv4, "! -o + -j DROP", `oifname != "*" counter drop`},
		{rules.IPv4, "-t raw -j CT --zone-orig 2", "counter unknown(-j CT --zone-orig 2)"},
		{
			rules.IPv4, "-t nat -p tcp -j REDIRECT --to-ports 15001",
			"meta l4proto tcp counter redirect to :15001",
		},
		{
			rules.IPv6, "-t nat -p tcp -j REDIRECT --to-ports 15001",
			"meta l4proto tcp counter redirect to :15001",
		},
		{rules.IPv4, "-t nat -p tcp -j REDIRECT", "meta l4proto tcp counter redirect"},
		{
			rules.IPv6, "-t nat -p tcp -j REDIRECT --to-ports 1-2",
			"meta l4proto tcp counter redirect to :1-2",
		},
		{
			rules.IPv4, "-t nat -p tcp -j DNAT --to-destination :8080",
			"meta l4proto tcp counter dnat to :8080",
		},
		{
			rules.IPv6, "-t nat -p tcp -j DNAT --to-destination :8080",
			"meta l4proto tcp counter dnat to :8080",
		},
		{
			rules.IPv4, "-t nat -p tcp -j DNAT --to-destination 10.0.0.1:80",
			"meta l4proto tcp counter dnat ip to 10.0.0.1:80",
		},
		{rules.IPv4, "-t nat -j MASQUERADE", "counter unknown(masquerade)"},
	} {
		t.Run(tc.family.String()+" "+tc.rule, func(t *testing.T) {
			ns := netnstest.New(t)
			name, rule := "mangle", tc.rule
			if text, ok := strings.CutPrefix(rule, "-t "); ok {
				name, rule, _ = strings.Cut(text, " ")
			}
			istiotest.Restore(t, ns, istiotest.Legacy, tc.family, "*"+name+
				"\n:CHAIN - [0:0]\n:RULES - [0:0]\n[3:99] -A RULES "+rule+"\nCOMMIT\n")
			table, err := xtables.Read(ns, tc.family, name)
			if err != nil {
				t.Fatal(err)
			}
			r := DecodeTable(table).Chain("RULES").Rules[0]
			if got := r.String(); got != tc.want || r.Hits != (rules.Hits{Packets: 3, Bytes: 99}) {
				t.Errorf("got %s, hits %v, want %s", got, r.Hits, tc.want)
			}
		})
	}
}

// Flags of later kernels may match anything and have any effect. They decode to an Unknown action,
// and the matches after them to Require actions.
func TestDecodeUnknownHeaderFlags(t *testing.T) {
	lo := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	length := rules.Unknown{Text: "-m length --length 100", Effect: rules.Reads}
	for name, h := range map[string]xtables.Header{
		"header flags 0x80, inversion flags 0x0": {Flags: 0x80},
		"header flags 0x0, inversion flags 0x80": {Invert: 0x80},
	} {
		h.In.Name, h.In.Mask = [16]byte{'l', 'o'}, [16]byte{0xff, 0xff, 0xff}
		h.Source = xtables.Address{Addr: netip.IPv4Unspecified(), Mask: netip.IPv4Unspecified()}
		h.Destination = h.Source
		var r rules.Rule
		for _, m := range append(decodeHeader(rules.IPv4, h), length) {
			addMatch(&r, m)
		}
		want := rules.Rule{
			Matches: []rules.Match{lo},
			Actions: []rules.Action{
				rules.Unknown{
					Text:    name,
					Ignores: rules.AllInputs &^ (rules.HeaderInput | rules.InterfaceInput),
				},
				rules.Require{Match: length},
			},
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestDecodeComments(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
		"*mangle\n:RULES - [0:0]\n[0:0] -A RULES -m comment --comment \"say why\" -m comment --comment twice -j RETURN\nCOMMIT\n")
	table, err := xtables.Read(ns, rules.IPv4, "mangle")
	if err != nil {
		t.Fatal(err)
	}
	r := DecodeTable(table).Chain("RULES").Rules[0]
	if r.Comment != "say why twice" || r.String() != "counter return" {
		t.Errorf("comment %q of rule %s, want comment \"say why twice\" of counter return", r.Comment,
			&r)
	}
}

func TestDecodeChains(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
		"*mangle\n:OUTPUT DROP [0:0]\n:CHAIN - [0:0]\nCOMMIT\n*nat\nCOMMIT\n")
	var got []string
	for _, name := range []string{"mangle", "nat"} {
		table, err := xtables.Read(ns, rules.IPv4, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range DecodeTable(table).Chains {
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

// Decoding drops nothing: parts that the model cannot express become unknown.
func FuzzDecodeHeader(f *testing.F) {
	f.Add(false, []byte("eth1\x00"), []byte("\xff\xff\xff\xff\xff\x00"), []byte{10, 0, 0, 0},
		[]byte{255, 0, 0, 0}, uint16(6), byte(0), byte(1))
	f.Add(true, []byte("tap+"), []byte("\xff\xff\xff"), make([]byte, 16), []byte{15: 1},
		uint16(300), byte(3), byte(0x7f))
	f.Add(true, []byte("+"), []byte{}, []byte{1}, []byte{1}, uint16(0), byte(0), byte(2))
	f.Add(true, []byte("0"), []byte("0"), []byte("0"), []byte{0}, uint16(300), byte(0x42), byte(0xdb))
	f.Fuzz(func(
		t *testing.T, isIPv6 bool, name, nameMask, addr, addrMask []byte, protocol uint16,
		flags, invert byte,
	) {
		family, size := rules.IPv4, 4
		if isIPv6 {
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
		// An inverted match with an all-zero mask never matches.
		restrictsInterface := h.In.Mask != (xtables.Interface{}).Mask ||
			invert&(xtables.InvertIn|xtables.InvertOut) != 0
		if restrictsInterface != strings.Contains(text, "if") && !strings.Contains(text, "interface") {
			t.Errorf("interface %q, mask %q: %s, want a match of the interface: %t", h.In.Name, h.In.Mask,
				text, restrictsInterface)
		}
		// With an all-zero mask, the kernel compares the rule's IPv4 address with 0.0.0.0, whatever
		// the packet's address, and ignores the rule's IPv6 address.
		restrictsAddress := !h.Source.Mask.IsUnspecified() ||
			!isIPv6 && !h.Source.Addr.IsUnspecified() ||
			invert&(xtables.InvertSource|xtables.InvertDestination) != 0
		if restrictsAddress != strings.Contains(text, "addr") {
			t.Errorf("address %s, mask %s: %s, want a match of the address: %t", h.Source.Addr,
				h.Source.Mask, text, restrictsAddress)
		}
		if invert != 0 && !strings.Contains(text, "!=") && !strings.Contains(text, "unknown") {
			t.Errorf("inversion flags 0x%x: %s, want an inverted or unknown match", invert, text)
		}
		verifyRoundTrip(t, family, matches)
	})
}

// verifyRoundTrip encodes the matches of a header, and verifies that they decode to the same
// matches. It does nothing if a match is unknown or has an empty interface name, because encodeRule
// rejects such matches.
func verifyRoundTrip(t *testing.T, family rules.Family, matches []rules.Match) {
	t.Helper()
	for _, m := range matches {
		named, ok := m.(rules.MatchInterface)
		if _, unknown := m.(rules.Unknown); unknown || ok && named.Names[0].Name == "" {
			return
		}
	}
	r, err := encodeRule(family, &rules.Rule{Matches: matches})
	if err != nil {
		t.Fatal(err)
	}
	second := decodeRule(family, &r)
	if got, want := (&rules.Rule{Matches: second.Matches}).String(),
		(&rules.Rule{Matches: matches}).String(); got != want {
		t.Errorf("%s is encoded and decoded to %s", want, got)
	}
}
