package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// interfaceName pads the name with zeros to 16 bytes.
func interfaceName(name string) []byte {
	return append([]byte(name), make([]byte, 16-len(name))...)
}

func matchDestinations(prefixes ...string) rules.MatchAddr {
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	return rules.MatchAddr{Side: rules.Destination, Ranges: rules.AddrRanges(list)}
}

const fullMask = ^uint32(0)

// TestExpressionsEqualTheExpressionsOfTheNftCommand compares the encoding of each match and each
// action, attribute by attribute, with github.com/google/nftables's encoding of the expressions
// that nft --debug=netlink prints for the same text.
func TestExpressionsEqualTheExpressionsOfTheNftCommand(t *testing.T) {
	meta := func(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }
	load := func(base expr.PayloadBase, offset, length uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}
	}
	port := load(expr.PayloadBaseTransportHeader, 2, 2)
	equals := func(data ...byte) expr.Any {
		return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}
	}
	differs := func(data ...byte) expr.Any {
		return &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data}
	}
	and := func(mask, xor []byte) expr.Any {
		return &expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: uint32(len(mask)), Mask: mask, Xor: xor,
		}
	}
	constant := func(data ...byte) expr.Any { return &expr.Immediate{Register: 1, Data: data} }
	hton := &expr.Byteorder{
		SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4,
	}
	v4 := []expr.Any{meta(expr.MetaKeyNFPROTO), equals(unix.NFPROTO_IPV4)}
	v6 := []expr.Any{meta(expr.MetaKeyNFPROTO), equals(unix.NFPROTO_IPV6)}
	list := func(e ...expr.Any) []expr.Any { return e }
	join := func(guard []expr.Any, e ...expr.Any) []expr.Any {
		return append(guard[:len(guard):len(guard)], e...)
	}

	for _, row := range []struct {
		match  rules.Match
		action rules.Action
		want   []expr.Any
	}{
		{
			match: rules.MatchInterface{Names: interfaceList("eth0")},
			want:  list(meta(expr.MetaKeyIIFNAME), equals(interfaceName("eth0")...)),
		},
		{
			match: rules.MatchInterface{Out: true, Not: true, Names: interfaceList("lo")},
			want:  list(meta(expr.MetaKeyOIFNAME), differs(interfaceName("lo")...)),
		},
		{
			match: rules.MatchInterface{Names: interfaceList("tap*")},
			want:  list(meta(expr.MetaKeyIIFNAME), equals([]byte("tap")...)),
		},
		{
			match: rules.MatchInterface{Names: interfaceList("eth0,eth1")},
			want: list(meta(expr.MetaKeyIIFNAME), &expr.Lookup{
				SourceRegister: 1, SetName: "__set%d", SetID: 1,
			}),
		},
		{match: rules.MatchFamily{Family: rules.IPv6}, want: v6},
		{
			match: rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
			want:  list(meta(expr.MetaKeyL4PROTO), equals(6)),
		},
		{
			match: rules.MatchProtocol{
				Not: true, Protocols: []rules.Protocol{rules.TCP, rules.UDP},
			},
			want: list(meta(expr.MetaKeyL4PROTO), &expr.Lookup{
				SourceRegister: 1, SetName: "__set%d", SetID: 1, Invert: true,
			}),
		},

		{
			match: matchDestinations("10.1.2.3/32"),
			want:  join(v4, load(expr.PayloadBaseNetworkHeader, 16, 4), equals(10, 1, 2, 3)),
		},
		{
			match: matchDestinations("10.1.0.0/16"),
			want:  join(v4, load(expr.PayloadBaseNetworkHeader, 16, 2), equals(10, 1)),
		},
		{
			match: matchDestinations("10.32.0.0/11"),
			want: join(v4, load(expr.PayloadBaseNetworkHeader, 16, 4),
				and([]byte{255, 224, 0, 0}, []byte{0, 0, 0, 0}), equals(10, 32, 0, 0)),
		},
		{
			match: matchDestinations("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"),
			want: join(v4, load(expr.PayloadBaseNetworkHeader, 16,
				4), &expr.Range{
				Op: expr.CmpOpEq, Register: 1, FromData: []byte{10, 0, 0, 0},
				ToData: []byte{10, 0, 2, 255},
			}),
		},
		{
			match: matchDestinations("0.0.0.0/0"),
			want: join(v4, load(expr.PayloadBaseNetworkHeader, 16,
				4), &expr.Range{
				Op: expr.CmpOpEq, Register: 1, FromData: []byte{0, 0, 0, 0},
				ToData: []byte{255, 255, 255, 255},
			}),
		},
		{
			match: matchDestinations("10.0.0.0/8", "192.168.0.0/16"),
			want: join(v4, load(expr.PayloadBaseNetworkHeader, 16,
				4), &expr.Lookup{SourceRegister: 1, SetName: "__set%d", SetID: 1}),
		},
		{
			match: rules.MatchAddr{Not: true, Ranges: matchDestinations("fd00::/8").Ranges},
			want:  join(v6, load(expr.PayloadBaseNetworkHeader, 8, 1), differs(0xfd)),
		},
		{
			match: matchDestinations("fd00::6/128"),
			want: join(v6, load(expr.PayloadBaseNetworkHeader, 24, 16),
				equals(netip.MustParseAddr("fd00::6").AsSlice()...)),
		},

		{match: matchDestinationPorts(false, "80"), want: list(port, equals(0, 80))},
		{match: matchDestinationPorts(true, "80,443"), want: list(port, differs(0, 80), differs(1, 187))},
		{
			match: matchDestinationPorts(false, "80,443"),
			want:  list(port, &expr.Lookup{SourceRegister: 1, SetName: "__set%d", SetID: 1}),
		},
		{
			match: matchDestinationPorts(true, "80-90"),
			want: list(port, &expr.Range{
				Op: expr.CmpOpNeq, Register: 1, FromData: []byte{0, 80}, ToData: []byte{0, 90},
			}),
		},
		{
			match: rules.MatchTCPFlags{Not: true, Mask: rules.SYN | rules.ACK, Value: rules.SYN},
			want: list(load(expr.PayloadBaseTransportHeader, 13, 1), and([]byte{0x12}, []byte{0}),
				differs(2)),
		},

		{
			match: rules.MatchOwner{IDs: rules.Singles[uint32](1337)},
			want:  list(meta(expr.MetaKeySKUID), equals(hostBytes(1337)...)),
		},
		{
			match: rules.MatchOwner{Group: true, Not: true, IDs: rules.Singles[uint32](1337)},
			want:  list(meta(expr.MetaKeySKGID), differs(hostBytes(1337)...)),
		},
		{
			match: rules.MatchOwner{IDs: []rules.IDRange{{First: 1000, Last: 2000}}},
			want: list(meta(expr.MetaKeySKUID), hton, &expr.Range{
				Op: expr.CmpOpEq, Register: 1, FromData: []byte{0, 0, 3, 0xe8},
				ToData: []byte{0, 0, 7, 0xd0},
			}),
		},
		{
			match: rules.MatchOwner{IDs: []rules.IDRange{
				{First: 1, Last: 1}, {First: 1000, Last: 2000},
			}},
			want: list(meta(expr.MetaKeySKUID), hton, &expr.Lookup{
				SourceRegister: 1, SetName: "__set%d", SetID: 1,
			}),
		},
		{
			match: rules.MatchOwner{IDs: rules.Singles[uint32](1, 3)},
			want: list(meta(expr.MetaKeySKUID), &expr.Lookup{
				SourceRegister: 1, SetName: "__set%d", SetID: 1,
			}),
		},

		{
			match: rules.MatchMark{Value: 1337, Mask: fullMask},
			want:  list(meta(expr.MetaKeyMARK), equals(hostBytes(1337)...)),
		},
		{
			match: rules.MatchMark{Not: true, Value: 4, Mask: 0xc},
			want: list(meta(expr.MetaKeyMARK), and(hostBytes(0xc), hostBytes(0)),
				differs(hostBytes(4)...)),
		},
		{
			match: rules.MatchMark{Conntrack: true, Value: 1337, Mask: fullMask},
			want:  list(&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, equals(hostBytes(1337)...)),
		},
		{
			match: rules.MatchState{States: rules.States(rules.Established, rules.Related)},
			want: list(&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, and(hostBytes(6), hostBytes(0)),
				differs(hostBytes(0)...)),
		},
		{
			match: rules.MatchState{Not: true, States: rules.States(rules.Invalid)},
			want: list(&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, and(hostBytes(1), hostBytes(0)),
				equals(hostBytes(0)...)),
		},
		{
			match: rules.MatchState{States: rules.States(rules.New, rules.Untracked)},
			want: list(&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
				and(hostBytes(0x48), hostBytes(0)), differs(hostBytes(0)...)),
		},

		{action: rules.Accept, want: list(&expr.Verdict{Kind: expr.VerdictAccept})},
		{action: rules.Drop, want: list(&expr.Verdict{Kind: expr.VerdictDrop})},
		{action: rules.Return, want: list(&expr.Verdict{Kind: expr.VerdictReturn})},
		{
			action: rules.Jump{Chain: "other"},
			want:   list(&expr.Verdict{Kind: expr.VerdictJump, Chain: "other"}),
		},
		{
			action: rules.Jump{Chain: "other", Goto: true},
			want:   list(&expr.Verdict{Kind: expr.VerdictGoto, Chain: "other"}),
		},
		{
			action: rules.RedirectTo{Port: 15001},
			want: list(constant(0x3a,
				0x99), &expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: 2}),
		},
		{
			action: rules.TProxy{Port: 15006},
			want:   list(constant(0x3a, 0x9e), &expr.TProxy{RegPort: 1}),
		},
		{
			action: rules.SetMark{Value: 1337, Mask: fullMask},
			want: list(constant(hostBytes(1337)...), &expr.Meta{
				Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1,
			}),
		},
		{
			action: rules.SetMark{Value: 4, Mask: 0xc},
			want: list(meta(expr.MetaKeyMARK), and(hostBytes(^uint32(0xc)), hostBytes(4)),
				&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.SaveMark{},
			want: list(meta(expr.MetaKeyMARK), &expr.Ct{
				Key: expr.CtKeyMARK, SourceRegister: true, Register: 1,
			}),
		},
		{
			action: rules.RestoreMark{},
			want: list(&expr.Ct{
				Key: expr.CtKeyMARK, Register: 1,
			}, &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.MixMark{Conntrack: true, ConntrackMark: ^uint32(0xfff), Xor: 0x111},
			want: list(&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
				and(hostBytes(^uint32(0xfff)), hostBytes(0x111)),
				&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.MixMark{Conntrack: true, Mark: 0xff},
			want: list(meta(expr.MetaKeyMARK), and(hostBytes(0xff), hostBytes(0)),
				&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.MixMark{Conntrack: true, Xor: 5},
			want: list(constant(hostBytes(5)...),
				&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.MixMark{ConntrackMark: 0xff, Xor: 1},
			want: list(&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
				and(hostBytes(0xff), hostBytes(1)),
				&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1}),
		},
		{
			action: rules.SetZone{Zone: 2},
			want: list(constant(native.AppendUint16(nil,
				2)...), &expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: 1}),
		},
	} {
		var r rules.Rule
		if row.match != nil {
			r.Matches = []rules.Match{row.match}
		} else {
			r.Actions = []rules.Action{row.action}
		}
		t.Run(r.String(), func(t *testing.T) {
			var want messages
			for _, e := range row.want {
				b, err := expr.Marshal(unix.NFPROTO_INET, e)
				if err != nil {
					t.Fatal(err)
				}
				want.addAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, b)
			}
			if diff := cmp.Diff(describe(want.buf), describe(expressionsOf(t, r))); diff != "" {
				t.Errorf("expressions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheLibraryEncodesTheSameAttributes compares every rule of random rulesets, attribute by
// attribute, with github.com/google/nftables's encoding of the same expressions.
func TestTheLibraryEncodesTheSameAttributes(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		for _, table := range rules.MustCompile(redirects.Draw(t, "redirect")).Tables {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					checkMarshal(t, &table, &r)
				}
			}
		}
	})
}

func checkMarshal(t *rapid.T, table *rules.Table, r *rules.Rule) {
	sets, err := ruleSets(r, nil, func(*set) (setRef, error) { return setRef{"__set%d", 7}, nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range r.Matches {
		if addr, ok := m.(rules.MatchAddr); ok && addr.Set != "" {
			sets[i] = setRef{addr.Set, 8}
		}
	}
	e := encoder{table: table}
	if err := e.writeExpressions(r, sets); err != nil {
		t.Fatal(err)
	}
	var want messages
	for _, x := range e.exprs.list {
		b, err := expr.Marshal(nfproto(table.Family), x)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		want.addAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, b)
	}
	if diff := cmp.Diff(describe(want.buf), describe(e.buf)); diff != "" {
		t.Fatalf("%s: expressions (-library +encoder):\n%s", r, diff)
	}
}

// expressionsOf encodes a rule and returns its list of expressions.
func expressionsOf(t *testing.T, r rules.Rule) []byte {
	t.Helper()
	tx, err := Encode(rules.Ruleset{Tables: []rules.Table{{
		Name: "t", Chains: []rules.Chain{{Name: "c", Rules: []rules.Rule{r}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range split(t, tx.Bytes()) {
		if m.Header.Type == messageType(unix.NFT_MSG_NEWRULE) {
			return attributes(m.Data[4:]).Get(unix.NFTA_RULE_EXPRESSIONS)
		}
	}
	t.Fatal("the transaction has no rule")
	return nil
}

// defaults contains the attributes that one encoder may omit where the other writes zeros.
var defaults = map[string][]uint16{
	"bitwise": {nftaBitwiseOp},
	"lookup":  {unix.NFTA_LOOKUP_FLAGS},
	"counter": {unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS},
}

// describe formats a list of expressions with sorted attributes and without defaults, because order
// and defaults differ between encoders.
func describe(list attributes) []string {
	var texts []string
	list.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		name := e.Text(unix.NFTA_EXPR_NAME)
		var attrs []string
		attributes(e.Get(unix.NFTA_EXPR_DATA)).Each(func(attrType uint16, value []byte) {
			isZero := !slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
			if !isZero || !slices.Contains(defaults[name], attrType) {
				attrs = append(attrs, fmt.Sprintf("%d=%x", attrType, value))
			}
		})
		slices.Sort(attrs)
		texts = append(texts, name+" "+strings.Join(attrs, " "))
	})
	return texts
}

func matchDestinationPorts(negated bool, text string) rules.MatchPort {
	return rules.MatchPort{Side: rules.Destination, Not: negated, Ports: portList(text)}
}

// TestMatchExpressionsNeedNoSet checks that a match is refused if its expressions would refer to a
// set, which MatchExpressions cannot create.
func TestMatchExpressionsNeedNoSet(t *testing.T) {
	one := rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](80)}
	list, err := MatchExpressions([]rules.Match{one})
	if err != nil || len(list) != 2 {
		t.Errorf("%s: %d expressions, error %v; want 2 expressions", one, len(list), err)
	}
	two := rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](80, 443)}
	if list, err := MatchExpressions([]rules.Match{two}); err == nil {
		t.Errorf("%s: %d expressions, want an error", two, len(list))
	}
}
