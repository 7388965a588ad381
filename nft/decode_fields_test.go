package nft

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// A fieldSet is a set or a map whose keys have several fields.
type fieldSet struct {
	flags     uint32
	keyLength int
	lengths   []uint32 // of the fields, nil if the set has no description of them
	dataType  uint32   // of a map
	elements  []SetElement
}

const severalFields = unix.NFT_SET_INTERVAL | nftSetConcat

// writeAttributes encodes the attributes of the set, without its elements.
func (s *fieldSet) writeAttributes(e *encoder) {
	e.addText(unix.NFTA_SET_NAME, "s")
	e.addNumber(unix.NFTA_SET_FLAGS, s.flags)
	e.addNumber(unix.NFTA_SET_KEY_LEN, uint32(s.keyLength))
	e.addNumber(unix.NFTA_SET_ID, 1)
	if s.flags&unix.NFT_SET_MAP != 0 {
		e.addNumber(unix.NFTA_SET_DATA_TYPE, s.dataType)
		e.addNumber(unix.NFTA_SET_DATA_LEN, 4)
	}
	if s.lengths == nil {
		return
	}
	desc := e.beginNest(unix.NFTA_SET_DESC)
	list := e.beginNest(nftaSetDescConcat)
	for _, length := range s.lengths {
		field := e.beginNest(unix.NFTA_LIST_ELEM)
		e.addNumber(nftaSetFieldLen, length)
		e.endNest(field)
	}
	e.endNest(list)
	e.endNest(desc)
}

// decode returns the set as if it were read from the kernel.
func (s *fieldSet) decode() *decodedSet {
	e := encoder{messages: messages{asDumped: true}}
	s.writeAttributes(&e)
	d := decodeSet(e.buf)
	e.buf = nil
	for i := range s.elements {
		e.writeSetElement(&s.elements[i])
	}
	d.addElements(e.buf)
	return d
}

// loadTo encodes a load of a payload or of a key of meta into the 4-byte register with the index.
func loadTo(e *encoder, index int, x expr.Any) {
	switch x := x.(type) {
	case *expr.Payload:
		x.DestRegister = uint32(unix.NFT_REG32_00 + index)
	case *expr.Meta:
		x.Register = uint32(unix.NFT_REG32_00 + index)
	}
	if err := e.marshal(x); err != nil {
		panic(err)
	}
}

// networkBytesAt loads bytes of the network header.
func networkBytesAt(offset, length uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

// writeDestination encodes the load of the IPv4 destination address into register index.
func writeDestination(e *encoder, index int) { loadTo(e, index, networkBytesAt(16, 4)) }

func writeProtocol(e *encoder, index int) {
	loadTo(e, index, &expr.Meta{Key: expr.MetaKeyL4PROTO})
}

// writeFieldLookup encodes a lookup in the set s. The destination is unix.NFT_REG_VERDICT for a
// verdict map, another register for a map of data, and negative for a set.
func writeFieldLookup(e *encoder, negated bool, destination int) {
	e.writeExpression("lookup", func() {
		e.addText(unix.NFTA_LOOKUP_SET, "s")
		e.addNumber(unix.NFTA_LOOKUP_SREG, unix.NFT_REG32_00)
		if destination >= 0 {
			e.addNumber(unix.NFTA_LOOKUP_DREG, uint32(destination))
		}
		if negated {
			e.addNumber(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

// interval returns the element of a set of intervals of several fields.
func interval(first, last string) SetElement {
	return SetElement{Key: []byte(first), Last: []byte(last)}
}

// bounds returns the two elements of an interval in a set whose keys have one field.
func bounds(first, next string) []SetElement {
	return []SetElement{{Key: []byte(first)}, {Key: []byte(next), IntervalEnd: true}}
}

const (
	local1, local9, local10 = "\x7f\x00\x00\x01", "\x7f\x00\x00\x09", "\x7f\x00\x00\x0a"
	udp                     = "\x11\x00\x00\x00"
)

// TestOnlyLookupsOfWholeFieldsAreModeled covers lookups of several operands, or in sets with
// several fields. The kernel compares only the bytes of each field (nft_pipapo_lookup in
// net/netfilter/nft_set_pipapo.c). Without fields, it compares whole keys as numbers
// (net/netfilter/nft_set_rbtree.c) or bytes.
func TestOnlyLookupsOfWholeFieldsAreModeled(t *testing.T) {
	twoAddresses := func(e *encoder) { writeDestination(e, 0); writeDestination(e, 1) }
	addressAndProtocol := func(e *encoder) { writeDestination(e, 0); writeProtocol(e, 1) }
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	for _, row := range []struct {
		name   string
		family rules.Family
		loads  func(*encoder)
		set    fieldSet
		negate bool
		want   string
	}{
		{
			name: "fields of the operands' lengths", loads: addressAndProtocol,
			set: fieldSet{severalFields, 8, []uint32{4, 1}, 0, []SetElement{
				interval(local1+udp, local9+udp),
			}},
			want: "ip daddr 127.0.0.1-127.0.0.9 meta l4proto udp | accept",
		},
		{
			name: "fields that are shorter than the operands", loads: addressAndProtocol,
			set: fieldSet{severalFields, 8, []uint32{1, 1}, 0, []SetElement{
				interval(local1+udp, local1+udp),
			}},
			want: "reads(ip daddr . meta l4proto @s) | accept",
		},
		{
			name: "one operand that is longer than its field", loads: twoAddresses,
			set: fieldSet{severalFields, 8, []uint32{4, 3}, 0, []SetElement{
				interval(local1+local1, local1+local1),
			}},
			want: "reads(ip daddr . ip daddr @s) | accept",
		},
		{
			name: "an operand that is shorter than its field", loads: addressAndProtocol,
			set: fieldSet{severalFields, 8, []uint32{4, 2}, 0, []SetElement{
				interval(local1+udp, local1+udp),
			}},
			want: "reads(ip daddr . meta l4proto @s) | accept",
		},
		{
			name: "one operand in two fields", family: rules.IPv6,
			loads: func(e *encoder) { loadTo(e, 0, networkBytesAt(24, 16)) },
			set: fieldSet{severalFields, 16, []uint32{8, 8}, 0, []SetElement{
				interval(strings.Repeat("\x00", 16), strings.Repeat("\xff", 8)+strings.Repeat("\x00", 8)),
			}},
			negate: true, want: "reads(ip6 daddr != @s) | accept",
		},
		{
			name: "two operands in one field", loads: twoAddresses,
			set: fieldSet{
				unix.NFT_SET_INTERVAL, 8, nil, 0,
				bounds(local1+"\x00\x00\x00\x01", local9+"\x00\x00\x00\x02"),
			},
			want: "reads(ip daddr . ip daddr @s) | accept",
		},
		{
			name: "two operands in a verdict map with one field", loads: twoAddresses,
			set: fieldSet{
				unix.NFT_SET_INTERVAL | unix.NFT_SET_MAP, 8, nil, unix.NFT_DATA_VERDICT,
				[]SetElement{
					{Key: []byte(local1 + "\x00\x00\x00\x01"), Verdict: accept},
					{Key: []byte(local9 + "\x00\x00\x00\x02"), IntervalEnd: true},
				},
			},
			want: "| anything(lookup)",
		},
		{
			name: "two operands in a map with one field", loads: twoAddresses,
			set: fieldSet{
				unix.NFT_SET_INTERVAL | unix.NFT_SET_MAP, 8, nil, 0,
				[]SetElement{
					{Key: []byte(local1 + "\x00\x00\x00\x01"), Data: []byte(local9)},
					{Key: []byte(local9 + "\x00\x00\x00\x02"), IntervalEnd: true},
				},
			},
			want: "| anything(nat)",
		},
		{
			name: "a verdict map with shorter fields", loads: addressAndProtocol,
			set: fieldSet{
				severalFields | unix.NFT_SET_MAP, 8,
				[]uint32{1, 1},
				unix.NFT_DATA_VERDICT,
				[]SetElement{{Key: []byte(local1 + udp), Last: []byte(local1 + udp), Verdict: accept}},
			},
			want: "| anything(lookup)",
		},
		{
			name: "single keys with the flag of several fields", loads: addressAndProtocol,
			set: fieldSet{nftSetConcat, 8, []uint32{1, 1}, 0, []SetElement{
				{Key: []byte(local1 + udp)},
			}},
			want: "ip daddr 127.0.0.1 meta l4proto udp | accept",
		},
		{
			name: "single keys that end within an operand", loads: twoAddresses,
			set:  fieldSet{0, 6, nil, 0, []SetElement{{Key: []byte(local1 + "\x7f\x00")}}},
			want: "reads(ip daddr . ip daddr @s) | accept",
		},
		{
			name:  "a set that changes, with keys of the operand's length",
			loads: func(e *encoder) { writeDestination(e, 0) },
			set:   fieldSet{flags: unix.NFT_SET_EVAL, keyLength: 4},
			want:  "ip daddr @s | accept",
		},
		{
			name:  "a set that changes, with shorter keys",
			loads: func(e *encoder) { writeDestination(e, 0) },
			set:   fieldSet{flags: unix.NFT_SET_EVAL, keyLength: 1},
			want:  "reads(ip daddr @s)? | accept",
		},
		{
			name: "an operand that the model cannot represent", loads: func(e *encoder) {
				writeDestination(e, 0)
				loadTo(e, 1, &expr.Meta{Key: expr.MetaKeyPRIORITY})
			},
			set: fieldSet{
				severalFields | unix.NFT_SET_MAP, 8,
				[]uint32{4, 2},
				unix.NFT_DATA_VERDICT,
				[]SetElement{{
					Key:  []byte(local1 + "\x05\x00\x00\x00"),
					Last: []byte(local1 + "\x05\x00\x00\x00"), Verdict: accept,
				}},
			},
			want: "ip daddr 127.0.0.1 reads(meta priority 0x0500) | accept",
		},
	} {
		rule := dumpedRule(func(e *encoder) {
			row.loads(e)
			isMap := row.set.flags&unix.NFT_SET_MAP != 0
			switch {
			case isMap && row.set.dataType == unix.NFT_DATA_VERDICT:
				writeFieldLookup(e, row.negate, unix.NFT_REG_VERDICT)
			case isMap:
				writeFieldLookup(e, row.negate, unix.NFT_REG32_00)
				writeNumbers(e, "nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY,
					unix.NFPROTO_IPV4, unix.NFTA_NAT_REG_ADDR_MIN, unix.NFT_REG32_00)
			default:
				writeFieldLookup(e, row.negate, -1)
				e.verdict(1, "")
			}
		})
		family := max(row.family, rules.IPv4)
		decoded := decodeAlone(family, decodedSets{"s": row.set.decode()}, rule)
		if len(decoded) != 1 {
			t.Errorf("%s: decoded as %d rules, want 1", row.name, len(decoded))
		}
		if diff := cmp.Diff(row.want, formatRule(decoded[0])); diff != "" {
			t.Errorf("%s, -want +got\n%s", row.name, diff)
		}
	}
}

// TestUnknownLookupsDependOnTheLengthsOfFields checks that lookups that compare other parts of the
// operands differ.
func TestUnknownLookupsDependOnTheLengthsOfFields(t *testing.T) {
	lookup := func(lengths ...uint32) rules.Unknown {
		set := fieldSet{severalFields, 8, lengths, 0, []SetElement{interval(local1+udp, local1+udp)}}
		rule := dumpedRule(func(e *encoder) {
			writeDestination(e, 0)
			writeProtocol(e, 1)
			writeFieldLookup(e, false, -1)
		})
		return unknownsOf(decodeAlone(rules.IPv4, decodedSets{"s": set.decode()}, rule)[0])[0]
	}
	a, same, other := lookup(1, 1), lookup(1, 1), lookup(2, 1)
	if a.Data == rules.NoData || a != same || a == other {
		t.Errorf("lookups %q, %q and %q, want the first two equal, and the third different", a, same,
			other)
	}
}

// TestAdditionsDependOnTheLengthOfKeys checks that additions to sets differ if the sets store
// different parts of the operand.
func TestAdditionsDependOnTheLengthOfKeys(t *testing.T) {
	identity := func(keyLength int) string {
		set := fieldSet{flags: unix.NFT_SET_EVAL, keyLength: keyLength}
		return set.decode().changeIdentity()
	}
	if a, same, other := identity(4), identity(4), identity(1); a != same || a == other {
		t.Errorf("identities %q, %q and %q, want the first two equal, and the third different", a, same,
			other)
	}
}

// TestOrderOfCrossingIntervals checks that the order of the elements of a map decides whether it
// equals another only if two keys overlap. The kernel accepts intervals of two fields that cross,
// and uses the element that was added first.
func TestOrderOfCrossingIntervals(t *testing.T) {
	accept, drop := &expr.Verdict{Kind: expr.VerdictAccept}, &expr.Verdict{Kind: expr.VerdictDrop}
	row := SetElement{Key: []byte(local1 + local9), Last: []byte(local10 + local9), Verdict: accept}
	column := SetElement{Key: []byte(local9 + local1), Last: []byte(local9 + local10), Verdict: drop}
	other := SetElement{Key: []byte(local1 + local1), Last: []byte(local1 + local1), Verdict: drop}
	for _, tc := range []struct {
		name    string
		a, b    SetElement
		isEqual bool
	}{
		{"crossing intervals", row, column, false},
		{"disjoint intervals", row, other, true},
	} {
		identity := func(elements ...SetElement) string {
			set := fieldSet{
				severalFields | unix.NFT_SET_MAP, 8, []uint32{4, 4}, unix.NFT_DATA_VERDICT, elements,
			}
			return set.decode().identity()
		}
		first := identity(tc.a, tc.b)
		if again := identity(tc.a, tc.b); first == rules.NoData || first != again {
			t.Errorf("%s: identities %q and %q of equal maps, want equal ones", tc.name, first, again)
		}
		if isEqual := first == identity(tc.b, tc.a); isEqual != tc.isEqual {
			t.Errorf("%s: equal in the other order: %t, want %t", tc.name, isEqual, tc.isEqual)
		}
	}
}

// TestKernelComparesFields sends a packet to 127.0.0.9 and compares the decoded rule with the
// kernel's counter.
func TestKernelComparesFields(t *testing.T) {
	for _, row := range []struct {
		name      string
		set       fieldSet
		protocol  bool // look up the destination and the protocol instead of twice the destination
		isMatched bool
		want      string
	}{
		{
			"the whole fields of another address",
			fieldSet{severalFields, 8, []uint32{4, 1}, 0, []SetElement{interval(local1+udp, local1+udp)}},
			true, false, "ip daddr 127.0.0.1 meta l4proto udp | counter",
		},
		{
			"the whole fields",
			fieldSet{severalFields, 8, []uint32{4, 1}, 0, []SetElement{interval(local9+udp, local9+udp)}},
			true, true, "ip daddr 127.0.0.9 meta l4proto udp | counter",
		},
		{
			"the first byte of another address",
			fieldSet{severalFields, 8, []uint32{1, 1}, 0, []SetElement{interval(local1+udp, local1+udp)}},
			true, true, "reads(ip daddr . meta l4proto @s) | counter",
		},
		{
			"an interval of whole keys",
			fieldSet{
				unix.NFT_SET_INTERVAL, 8, nil, 0,
				bounds(local1+"\x00\x00\x00\x01", local10+"\x00\x00\x00\x02"),
			},
			false, true, "reads(ip daddr . ip daddr @s) | counter",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			ns := netnstest.New(t)
			withConn(t, ns, func(c *conn) error { return c.commit(row.set.transaction(row.protocol)) })
			err := ns.Do(func() error {
				sender, err := net.Dial("udp4", "127.0.0.9:9")
				if err != nil {
					return err
				}
				defer sender.Close()
				_, err = sender.Write([]byte("x"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			rs, err := ReadAll(ns)
			if err != nil {
				t.Fatal(err)
			}
			r := rs.Tables[0].Chains[0].Rules[0]
			if isMatched := r.Hits.Packets > 0; isMatched != row.isMatched {
				t.Errorf("the kernel matched the packet: %t, want %t", isMatched, row.isMatched)
			}
			r.Hits = rules.Hits{}
			if diff := cmp.Diff(row.want, formatRule(r)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// transaction returns the creation of a table with the set, and a rule at output that counts the
// packets whose operands are in the set.
func (s *fieldSet) transaction(protocol bool) *Transaction {
	e := newEncoder(0)
	e.table = &rules.Table{Family: rules.IPv4, Name: "t"}
	chain := rules.Chain{Name: "c", Base: &rules.Base{Hook: rules.Output}}
	e.beginMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, description{})
	e.addText(unix.NFTA_TABLE_NAME, "t")
	e.end()
	e.writeChain(&chain)
	e.beginMessage(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, description{})
	e.addText(unix.NFTA_SET_TABLE, "t")
	s.writeAttributes(e)
	e.end()
	e.beginMessage(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, description{})
	e.addText(unix.NFTA_SET_ELEM_LIST_TABLE, "t")
	e.addText(unix.NFTA_SET_ELEM_LIST_SET, "s")
	list := e.beginNest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range s.elements {
		e.writeSetElement(&s.elements[i])
	}
	e.endNest(list)
	e.end()
	e.beginMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, description{chain: &chain})
	e.addText(unix.NFTA_RULE_TABLE, "t")
	e.addText(unix.NFTA_RULE_CHAIN, "c")
	list = e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	writeDestination(e, 0)
	if protocol {
		writeProtocol(e, 1)
	} else {
		writeDestination(e, 1)
	}
	writeFieldLookup(e, false, -1)
	e.writeExpression("counter", func() {})
	e.endNest(list)
	e.end()
	return e.transaction()
}
