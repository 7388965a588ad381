package diff_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestBypass combines foreign rules with a ruleset that redirects packets whose destination port is
// 80.
func TestBypass(t *testing.T) {
	own := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp, toPort(80))))
	raw := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Output, -300, list...)
	}
	nat := func(list ...rules.Rule) rules.Chain {
		return base(rules.NAT, rules.Output, -150, list...)
	}
	unknown := rules.Unknown{Text: "a word", Effect: rules.Reads}
	random := rules.Unknown{Text: "random", Effect: rules.ReadsVarying}
	for _, row := range []struct {
		name    string
		foreign rules.Chain
		want    string // part of the rule by which packets bypass the proxy, empty for no bypass
		// undecided is a part of the undecided condition's text, or empty if nothing is undecided.
		undecided string
	}{
		{name: "no rule", foreign: raw()},
		{
			name: "the traffic is not tracked", foreign: raw(when(rules.Notrack{}, tcp, toPort(80))),
			want: "notrack",
		},
		{name: "other traffic is not tracked", foreign: raw(when(rules.Notrack{}, tcp, toPort(81)))},
		{name: "the traffic is dropped", foreign: raw(when(rules.Drop, tcp, toPort(80)))},
		{
			name:    "untracked traffic is dropped",
			foreign: raw(when(rules.Notrack{}, tcp, toPort(80)), when(rules.Drop, tcp)),
		},
		{
			name:    "the traffic is accepted in an earlier chain",
			foreign: nat(when(rules.Accept, tcp, toPort(80))),
		},
		{name: "more traffic is redirected", foreign: nat(when(redirect(15001), tcp))},
		{
			name:    "the traffic is redirected to another port",
			foreign: nat(when(redirect(9), tcp)),
			want:    ":9",
		},
		{
			name:    "an unknown condition selects the traffic",
			foreign: raw(when(rules.Notrack{}, tcp, toPort(80), unknown)), undecided: "a word",
		},
		{
			name:    "random packets are not tracked",
			foreign: raw(when(rules.Notrack{}, tcp, toPort(80), random)), want: "notrack",
		},
		{
			name:      "an unknown expression may change the traffic",
			foreign:   raw(when(rules.Accept, tcp, toPort(80), rules.Unknown{Text: "anything"})),
			undecided: "anything",
		},
		{
			name:    "an unknown condition selects other traffic",
			foreign: raw(when(rules.Notrack{}, tcp, toPort(81), unknown)),
		},
		{
			name:    "an unknown condition determines whether the traffic is dropped",
			foreign: raw(when(rules.Drop, tcp, toPort(80), unknown)),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkBypass(t, own, row.foreign, row.want, row.undecided)
		})
	}
}

// TestBypassWithoutAnotherListener verifies that Bypass does not assume that a foreign tproxy rule
// finds a listener if the proxy listens.
func TestBypassWithoutAnotherListener(t *testing.T) {
	const escape = 0x539
	own := mangleIn(when(rules.Return, marked(escape, everyBit)),
		when(rules.TProxyDrop{Port: 15006}, tcp))
	foreign := base(rules.Filter, rules.Prerouting, -160,
		rules.Rule{
			Matches: []rules.Match{tcp},
			Actions: []rules.Action{rules.TProxy{Port: 9999}, rules.Accept},
		},
		when(setMark(escape, everyBit), tcp))
	r := diff.Bypass(ruleset(own), ruleset(foreign, own), diff.Options{})
	if len(r.Classes) == 0 {
		t.Fatal("no packet bypasses the proxy, want the packets without a listener on port 9999")
	}
	if got := r.Classes[0].Witness.MissingListeners; got != "9999" {
		t.Errorf("witness without the listeners %q, want 9999", got)
	}
}

// TestBypassOfLaterPackets combines foreign rules with rulesets that redirect or assign only the
// first packet of a connection.
func TestBypassOfLaterPackets(t *testing.T) {
	outbound := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp, toPort(80))))
	inbound := ruleset(natIn(when(redirect(15006), tcp, toPort(80))))
	established := rules.MatchState{States: rules.States(rules.Established)}
	tproxy := ruleset(mangleIn(
		when(rules.Accept, tcp, toPort(80), established),
		rules.Rule{
			Matches: []rules.Match{tcp, toPort(80)},
			Actions: []rules.Action{rules.TProxy{Port: 15006}, rules.Accept},
		},
		when(rules.Drop, tcp, toPort(80))))
	// firstOnly redirects connections that begin with a SYN.
	syn := rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN}
	firstOnly := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp, toPort(80), syn)))
	later := rules.MatchTCPFlags{Mask: rules.SYN, Value: 0}
	replies := rules.MatchDirection{Reply: true}
	anything := rules.Unknown{Text: "anything"}
	atOutput := func(priority int, list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Output, priority, list...)
	}
	atPrerouting := func(priority int, list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Prerouting, priority, list...)
	}
	atPostrouting := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Postrouting, 0, list...)
	}
	for _, row := range []struct {
		name            string
		own             rules.Ruleset
		foreign         rules.Chain
		want, undecided string // see checkBypass
	}{
		{
			name: "outbound, changed before the redirection", own: outbound,
			foreign: atOutput(-150, when(anything, tcp, toPort(80), established)), undecided: "anything",
		},
		{
			name: "outbound, changed after the redirection", own: outbound,
			foreign: atOutput(0, when(anything, tcp, toPort(15001), established)), undecided: "anything",
		},
		{
			name: "outbound, changed in a chain that routes again", own: outbound,
			foreign:   base(rules.Route, rules.Output, 0, when(anything, tcp, toPort(15001), established)),
			undecided: "anything",
		},
		{
			name: "outbound, changed at postrouting", own: outbound,
			foreign: atPostrouting(when(anything, to("127.0.0.1/32"), established)), undecided: "anything",
		},
		{
			name: "outbound, changed when the socket is bound to another interface", own: outbound,
			foreign: atPostrouting(when(anything, tcp, established,
				rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "eth0"}}})),
			undecided: "anything",
		},
		{
			name: "outbound, changed on arrival on lo", own: outbound,
			foreign: atPrerouting(-150, when(anything, tcp, toPort(15001), established)), undecided: "anything",
		},
		{
			name: "outbound, assigned to another listener on arrival on lo", own: outbound,
			foreign: atPrerouting(-150, when(rules.TProxy{Port: 9}, tcp, toPort(15001), established)),
			want:    "tproxy to :9",
		},
		{
			name: "outbound, changed by an expression that an unknown condition selects", own: outbound,
			foreign:   atOutput(0, when(anything, tcp, established, rules.Unknown{Text: "a word", Effect: rules.Reads})),
			undecided: "anything",
		},
		{
			name: "outbound, other connections", own: outbound,
			foreign: atOutput(0, when(anything, tcp, toPort(80), established)),
		},
		{
			name: "outbound, packets that leave", own: outbound,
			foreign: atPostrouting(when(anything, to("192.0.2.0/24"), established)),
		},
		{
			name: "outbound, replies", own: outbound,
			foreign: atOutput(0, when(anything, tcp, toPort(15001), established, replies)),
		},
		{
			name: "outbound, accepted", own: outbound,
			foreign: atOutput(0, when(rules.Accept, tcp, toPort(15001), established), when(anything, tcp, toPort(15001), established)),
		},
		{
			name: "outbound, dropped", own: outbound,
			foreign: atOutput(-150, when(rules.Drop, tcp, toPort(80), established), when(anything, tcp, toPort(80), established)),
		},
		{
			name: "outbound, not tracked after conntrack", own: outbound,
			foreign: atOutput(-150, when(rules.Notrack{}, tcp, toPort(80), established)),
		},
		{
			name: "outbound, later packets in another zone", own: outbound,
			foreign:   atOutput(-300, when(rules.SetZone{Zone: 7}, tcp, later)),
			undecided: "whether packets in the conntrack zone 7 belong to a connection",
		},
		{
			name: "outbound, first packets in another zone", own: outbound,
			foreign:   atOutput(-300, when(rules.SetZone{Zone: 7}, syn)),
			undecided: "whether packets in the conntrack zone 0 belong to a connection",
		},
		{
			name: "outbound, large packets in another zone", own: outbound,
			foreign: atOutput(-300, when(rules.SetZone{Zone: 7}, tcp,
				rules.Unknown{Text: "length", Effect: rules.Reads})),
			undecided: "whether packets in the conntrack zone 7 belong to a connection",
		},
		{
			name: "outbound, all packets in another zone", own: outbound,
			foreign: atOutput(-300, when(rules.SetZone{Zone: 7}, tcp)),
		},
		{
			name: "outbound, packets to one port in another zone", own: outbound,
			foreign: atOutput(-300, when(rules.SetZone{Zone: 7}, tcp, toPort(80))),
		},
		{
			name: "first packets, later packets not tracked", own: firstOnly,
			foreign: atOutput(-300, when(rules.Notrack{}, tcp, toPort(80), later)), want: "notrack",
		},
		{
			name: "first packets, later packets of another port not tracked", own: firstOnly,
			foreign: atOutput(-300, when(rules.Notrack{}, tcp, toPort(81), later)),
		},
		{
			name: "inbound, changed before the redirection", own: inbound,
			foreign: atPrerouting(-150, when(anything, tcp, toPort(80), established)), undecided: "anything",
		},
		{
			name: "inbound, changed after the redirection", own: inbound,
			foreign: atPrerouting(0, when(anything, tcp, toPort(15006), established)), undecided: "anything",
		},
		{
			name: "inbound, assigned to another listener", own: inbound,
			foreign: atPrerouting(-150, when(rules.TProxy{Port: 9}, tcp, toPort(80), established)),
			want:    "tproxy to :9",
		},
		{
			name: "inbound, other connections", own: inbound,
			foreign: atPrerouting(0, when(anything, tcp, toPort(81), established)),
		},
		{
			name: "transparent listener, changed before the assignment", own: tproxy,
			foreign: atPrerouting(-160, when(anything, tcp, toPort(80), established)), undecided: "anything",
		},
		{
			name: "transparent listener, changed after the assignment", own: tproxy,
			foreign: atPrerouting(0, when(anything, tcp, toPort(80), established)), undecided: "anything",
		},
		{
			name: "transparent listener, other connections", own: tproxy,
			foreign: atPrerouting(0, when(anything, tcp, toPort(81), established)),
		},
		{
			// The kernel finds the socket of the connection first.
			name: "transparent listener, assigned to another one", own: tproxy,
			foreign: atPrerouting(0, when(rules.TProxy{Port: 9}, tcp, toPort(80), established)),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkBypass(t, row.own, row.foreign, row.want, row.undecided)
		})
	}
}

// TestBypassByAnotherDestination combines foreign rules with rulesets that redirect all packets
// except packets to the host itself, and packets to some ports. The foreign rules translate packets
// that are not redirected.
func TestBypassByAnotherDestination(t *testing.T) {
	onLoopback := rules.MatchInterface{
		Out: true, Names: []rules.InterfaceName{{Name: "lo"}},
	}
	outbound := ruleset(base(rules.NAT, rules.Output, -100,
		when(rules.Return, tcp, onLoopback), when(rules.Return, tcp, toPort(5432)),
		when(redirect(15001), tcp)))
	inbound := ruleset(natIn(when(rules.Return, tcp, toPort(15008)), when(redirect(15006), tcp)))
	anything := rules.Unknown{Text: "anything"}
	natOut := func(list ...rules.Rule) rules.Chain {
		return base(rules.NAT, rules.Output, -90, list...)
	}
	afterNATIn := func(list ...rules.Rule) rules.Chain {
		return base(rules.NAT, rules.Prerouting, -90, list...)
	}
	const hostAddress = "10.244.1.5/32" // see checkBypass
	for _, row := range []struct {
		name            string
		own             rules.Ruleset
		foreign         rules.Chain
		want, undecided string // see checkBypass
	}{
		{
			name: "from the host to another host", own: outbound,
			foreign: natOut(when(dnat("192.0.2.1", 0), tcp, to(hostAddress))), want: "dnat ip to 192.0.2.1",
		},
		{
			name: "from a loopback address to another host", own: outbound,
			foreign: natOut(when(dnat("192.0.2.1", 80), tcp, to("127.0.0.1/32"))), want: "dnat ip to 192.0.2.1:80",
		},
		{
			name: "from the host to a range of hosts", own: outbound,
			foreign: natOut(when(rules.DNATTo{
				Addr: netip.MustParseAddr("192.0.2.1"), LastAddr: netip.MustParseAddr("192.0.2.9"),
			}, tcp, to(hostAddress))),
			want: "dnat ip to 192.0.2.1-192.0.2.9",
		},
		{
			name: "from the host to itself", own: outbound,
			foreign: natOut(when(dnat("10.244.1.5", 81), tcp, to("127.0.0.11/32"))),
		},
		{
			name: "from the host to another port of itself", own: outbound,
			foreign: natOut(when(redirect(81), tcp, to(hostAddress))),
		},
		{
			name: "from another address that is not sent over lo", own: outbound,
			foreign: natOut(when(dnat("192.0.2.1", 0), tcp, to("10.96.0.1/32"))),
		},
		{
			name: "from an excluded port to another one", own: outbound,
			foreign: natOut(when(rules.DNATPort{Port: 80}, tcp, toPort(5432))), want: "dnat to :80",
		},
		{
			name: "from an excluded port to the same port of another host", own: outbound,
			foreign: natOut(when(dnat("192.0.2.1", 0), tcp, to("198.51.100.1/32"), toPort(5432))),
		},
		{
			name: "packets of another protocol", own: outbound,
			foreign: natOut(when(dnat("192.0.2.1", 0), protocol(rules.UDP), to(hostAddress))),
		},
		{
			name: "an unknown expression for first packets", own: outbound,
			foreign:   base(rules.Route, rules.Output, 0, when(anything, tcp, to(hostAddress))),
			undecided: "anything",
		},
		{
			name: "an unknown expression for packets of sockets that are bound to lo", own: outbound,
			foreign:   base(rules.Filter, rules.Postrouting, 0, when(anything, tcp, onLoopback, to("192.0.2.1/32"))),
			undecided: "anything",
		},
		{
			name: "an unknown expression for later packets", own: outbound,
			foreign: base(rules.Route, rules.Output, 0, when(anything, tcp, to(hostAddress),
				rules.MatchState{States: rules.States(rules.Established)})),
		},
		{
			name: "inbound, from an excluded port to another one", own: inbound,
			foreign: afterNATIn(when(redirect(80), tcp, toPort(15008))), want: "redirect to :80",
		},
		{
			name: "inbound, from an excluded port to a transparent listener", own: inbound,
			foreign: mangleIn(rules.Rule{
				Matches: []rules.Match{tcp, toPort(15008)},
				Actions: []rules.Action{rules.TProxy{Port: 80}, rules.Accept},
			}),
			want: "tproxy to :80",
		},
		{
			name: "inbound, from an excluded port to the proxy", own: inbound,
			foreign: afterNATIn(when(redirect(15006), tcp, toPort(15008))),
		},
		{
			name: "inbound, from an excluded port to another host", own: inbound,
			foreign: afterNATIn(when(dnat("192.0.2.1", 80), tcp, toPort(15008))),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkBypass(t, row.own, row.foreign, row.want, row.undecided)
		})
	}
}

// TestBypassAfterMasquerade combines a chain that masquerades packets on lo with a ruleset that
// does not capture packets on lo from an address. The kernel selects one of the host's addresses.
func TestBypassAfterMasquerade(t *testing.T) {
	const ownAddress, other = "10.244.1.5", "127.0.0.6"
	own := ruleset(mangleIn(
		when(rules.Return, tcp, rules.MatchAddr{Side: rules.Source, Ranges: to(other + "/32").Ranges}),
		when(rules.TProxyDrop{Port: 15006}, tcp)))
	masquerade := base(rules.NAT, rules.Postrouting, 100, when(rules.Unknown{
		Text: "masquerade", Effect: rules.TranslatesSource,
	}, rules.MatchAddr{Side: rules.Source, Ranges: to("172.17.0.0/16").Ranges}))
	toAddressRange := base(rules.NAT, rules.Postrouting, 100, when(rules.Unknown{
		Text: "snat to 10.0.0.1-10.0.0.9", Effect: rules.TranslatesSource,
	}, rules.MatchAddr{Side: rules.Source, Ranges: to("172.17.0.0/16").Ranges}))
	for _, row := range []struct {
		name      string
		foreign   rules.Chain
		addresses []string
		undecided bool
	}{
		{"the host does not have the address", masquerade, []string{ownAddress}, false},
		{"the host has both addresses", masquerade, []string{ownAddress, other}, true},
		{"the addresses are unknown", masquerade, nil, true},
		{"SNAT to a range of addresses", toAddressRange, []string{ownAddress}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var o diff.Options
			for _, a := range row.addresses {
				o.HostAddresses = append(o.HostAddresses, netip.MustParseAddr(a))
			}
			r := diff.Bypass(own, ruleset(append(own.Tables[0].Chains, row.foreign)...), o)
			if len(r.Classes) > 0 || len(r.Undecided) > 0 != row.undecided {
				t.Errorf("%d classes, undecided %v, want undecided packets: %t", len(r.Classes), r.Undecided,
					row.undecided)
			}
		})
	}
}

// TestBypassOfUnmarkedPackets combines rules for marks with rulesets for received packets, which
// have no mark, and for new connections, which have no connection mark.
func TestBypassOfUnmarkedPackets(t *testing.T) {
	const ownMark = 0x539
	returnsOwn, captures := when(rules.Return, marked(ownMark, everyBit)), when(rules.TProxyDrop{Port: 15006}, tcp)
	onLoopback := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	tproxy := ruleset(mangleIn(when(rules.Return, onLoopback), returnsOwn, captures))
	tproxyOnLoopback := ruleset(mangleIn(returnsOwn, captures))
	outbound := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp)))
	inbound := ruleset(natIn(when(redirect(15006), tcp)))
	connection := rules.MatchMark{Conntrack: true, Value: 5, Mask: everyBit}
	before := func(hook rules.Hook, list ...rules.Rule) rules.Chain {
		return base(rules.Filter, hook, -180, list...)
	}
	related := rules.MatchState{States: rules.States(rules.Related)}
	established := rules.MatchState{States: rules.States(rules.Established)}
	for _, row := range []struct {
		name    string
		own     rules.Ruleset
		foreign rules.Chain
		want    string // see checkBypass
	}{
		{
			name: "a mask of received marks is cleared", own: tproxy,
			foreign: before(rules.Prerouting, when(setMark(0, 0xf0000))),
		},
		{
			name: "a mask of the marks of packets on lo is cleared", own: tproxyOnLoopback,
			foreign: before(rules.Prerouting, when(setMark(0, 0xf0000))), want: "mark 0x539 return",
		},
		{
			name: "a received mark is compared", own: tproxy,
			foreign: before(rules.Prerouting, when(rules.Notrack{}, marked(7, everyBit)),
				when(setMark(ownMark, everyBit), marked(7, everyBit))),
		},
		{
			name: "the mark of received packets is set", own: tproxy,
			foreign: before(rules.Prerouting, when(setMark(ownMark, everyBit), toPort(80))), want: "mark 0x539 return",
		},
		{
			name: "the mark of a sent packet is compared", own: outbound,
			foreign: base(rules.Filter, rules.Output, -300, when(rules.Notrack{}, tcp, marked(7, everyBit))),
			want:    "notrack",
		},
		{
			name: "the connection mark of new sent packets", own: outbound,
			foreign: base(rules.NAT, rules.Output, -150, when(dnat("192.0.2.1", 0), tcp, connection)),
		},
		{
			name: "the connection mark of new received packets", own: inbound,
			foreign: base(rules.NAT, rules.Prerouting, -150, when(dnat("192.0.2.1", 0), tcp, connection)),
		},
		{
			name: "related packets without a connection mark", own: outbound,
			foreign: base(rules.NAT, rules.Output, -150, when(dnat("192.0.2.1", 0), tcp, related)),
			want:    "dnat",
		},
		{
			name: "the connection mark of established packets", own: tproxy,
			foreign: before(rules.Prerouting, when(setMark(ownMark, everyBit), tcp, connection, established)),
			want:    "mark 0x539 return",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkBypass(t, row.own, row.foreign, row.want, "")
		})
	}
}

// TestBypassByTranslationToTheHost combines DNAT to addresses of the host with rulesets that
// redirect packets.
func TestBypassByTranslationToTheHost(t *testing.T) {
	inbound := ruleset(natIn(when(redirect(15006), tcp, toPort(80, 81))))
	outbound := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp, toPort(80))))
	tproxy := ruleset(mangleIn(when(rules.TProxyDrop{Port: 15006}, tcp, toPort(80))))
	atInput := func(action rules.Action, port uint16) rules.Chain {
		return base(rules.NAT, rules.Prerouting, -150, when(action, tcp, toPort(port)))
	}
	atOutput := func(action rules.Action) rules.Chain {
		return base(rules.NAT, rules.Output, -150, when(action, tcp, toPort(80)))
	}
	for _, row := range []struct {
		name    string
		own     rules.Ruleset
		foreign rules.Chain
		want    string // see checkBypass
	}{
		{"inbound, to the proxy's port", inbound, atInput(dnat("10.244.1.5", 15006), 80), ""},
		{"inbound, an excluded port, to the proxy's port", inbound, atInput(dnat("10.244.1.5", 15006), 22), ""},
		{"inbound, to another port", inbound, atInput(dnat("10.244.1.5", 8080), 80), "dnat"},
		{"inbound, to the same port", inbound, atInput(dnat("10.244.1.5", 0), 80), "dnat"},
		{"inbound, to another host", inbound, atInput(dnat("10.244.1.6", 15006), 80), "dnat"},
		{"inbound, to a loopback address", inbound, atInput(dnat("127.0.0.1", 15006), 80), "dnat"},
		{"inbound, to addresses that include the host's", inbound, atInput(rules.DNATTo{
			Addr: netip.MustParseAddr("10.244.1.5"), LastAddr: netip.MustParseAddr("10.244.1.6"), Port: 15006,
		}, 80), "dnat"},
		{"TPROXY, to the proxy's port", tproxy, base(rules.NAT, rules.Prerouting, -250,
			when(dnat("10.244.1.5", 15006), tcp, toPort(80))), ""},
		{"outbound, to the proxy's port on the loopback address", outbound, atOutput(dnat("127.0.0.1", 15001)), ""},
		{"outbound, to the proxy's port on another loopback address", outbound, atOutput(dnat("127.0.0.2", 15001)), "dnat"},
		{"outbound, to another port on the loopback address", outbound, atOutput(dnat("127.0.0.1", 8080)), "dnat"},
	} {
		t.Run(row.name, func(t *testing.T) { checkBypass(t, row.own, row.foreign, row.want, "") })
	}
}

// dnat returns a translation to a destination.
func dnat(address string, port uint16) rules.Action {
	return rules.DNATTo{Addr: netip.MustParseAddr(address), Port: port}
}

// checkBypass adds the foreign chain to a ruleset of the host 10.244.1.5. want is a part of the
// rule by which packets of the ruleset's own traffic bypass the proxy, empty for no bypass.
// undecided is a part of the undecided condition's text, empty if nothing is undecided.
func checkBypass(t *testing.T, own rules.Ruleset, foreign rules.Chain, want, undecided string) {
	t.Helper()
	live := own
	live.Tables = append([]rules.Table{{
		Family: rules.IPv4, Name: "foreign", Chains: []rules.Chain{foreign},
	}}, own.Tables...)
	r := diff.Bypass(own, live, diff.Options{
		HostAddresses: []netip.Addr{netip.MustParseAddr("10.244.1.5")},
	})
	decided := ""
	for _, c := range r.Classes {
		if c.Outcome.Right.Decided != nil {
			decided += c.Outcome.Right.Decided.String()
		}
	}
	if (want != "") != (len(r.Classes) > 0) || !strings.Contains(decided, want) {
		t.Errorf("%d classes of packets bypass the proxy, by the rules %q, want by %q: %+v",
			len(r.Classes), decided, want, r.Classes)
	}
	description := ""
	for _, u := range r.Undecided {
		description += u.Text
	}
	if (undecided != "") != (len(r.Undecided) > 0) || !strings.Contains(description, undecided) {
		t.Errorf("undecided %q, want %q", description, undecided)
	}
}

// TestBypassByTheCgroupOfTheReceiver verifies that Bypass considers foreign rules of nft at
// prerouting that match the cgroup of the socket that receives the packet.
func TestBypassByTheCgroupOfTheReceiver(t *testing.T) {
	own := base(rules.NAT, rules.Prerouting, -100, when(redirect(15006), tcp))
	foreign := base(rules.NAT, rules.Prerouting, -130,
		when(redirect(8080), tcp, rules.MatchCgroup{Path: "kubepods", Level: 1}))
	r := diff.Bypass(ruleset(own), ruleset(foreign, own), diff.Options{})
	if len(r.Classes) == 0 {
		t.Error("no packet bypasses the proxy, want the packets to listeners in the cgroup")
	}
}
