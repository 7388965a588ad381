package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// TestSetsAreReadInAnyOrderOfElements covers adjacent intervals, an interval up to the end of the
// address space, and the end element that the nft command adds before the first interval.
func TestSetsAreReadInAnyOrderOfElements(t *testing.T) {
	at := func(text string, end bool) element {
		return element{key: netip.MustParseAddr(text).AsSlice(), end: end}
	}
	for _, row := range []struct {
		name     string
		elements []element
		want     string
	}{
		{
			"one interval",
			[]element{at("10.0.0.0", false), at("10.0.1.0", true)},
			"10.0.0.0-10.0.0.255",
		},
		{
			"adjacent intervals",
			[]element{
				at("10.0.0.0", false), at("10.0.1.0", true), at("10.0.1.0", false),
				at("10.0.2.0", true),
			},
			"10.0.0.0-10.0.1.255",
		},
		{
			"up to the end of the address space",
			[]element{at("10.0.0.0", false), at("11.0.0.0", true), at("255.0.0.0", false)},
			"10.0.0.0-10.255.255.255 255.0.0.0-255.255.255.255",
		},
		{
			"an end element without a start",
			[]element{at("0.0.0.0", true), at("10.0.0.0", false), at("11.0.0.0", true)},
			"10.0.0.0-10.255.255.255",
		},
		{"everything", []element{at("0.0.0.0", false)}, "0.0.0.0-255.255.255.255"},
		{
			"the first address",
			[]element{at("0.0.0.0", false), at("0.0.0.1", true)},
			"0.0.0.0-0.0.0.0",
		},
		{
			"the last address",
			[]element{at("0.0.0.0", true), at("255.255.255.255", false)},
			"255.255.255.255-255.255.255.255",
		},
		{
			"the last IPv6 address",
			[]element{at("fd00::", false), at("fe00::", true), at("ff00::", false)},
			"fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ff00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				s := decodedSet{interval: true, elements: slices.Clone(row.elements)}
				random.Shuffle(len(s.elements), func(i, j int) {
					s.elements[i], s.elements[j] = s.elements[j], s.elements[i]
				})
				if got := formatKeys(t, &s); got != row.want {
					t.Fatalf("keys %s, want %s", got, row.want)
				}
				if got := formatRanges(dumped(s.elements).addrRanges()); got != row.want {
					t.Fatalf("addresses %s, want %s", got, row.want)
				}
			}
		})
	}
}

// formatKeys formats the keys of a set of addresses as ranges.
func formatKeys(t *testing.T, s *decodedSet) string {
	t.Helper()
	keys, err := s.keys()
	if err != nil {
		t.Fatal(err)
	}
	var ranges []netipx.IPRange
	for _, key := range keys {
		r, ok := addrRange(key.first, key.last)
		if !ok {
			t.Fatalf("key %x is not an address range", key)
		}
		ranges = append(ranges, r)
	}
	return formatRanges(rules.NormalizeAddrs(ranges))
}

// dumped returns an interval set as if the kernel had dumped it in two messages, with the elements
// in the given order.
func dumped(elements []element) *decodedSet {
	s := &decodedSet{interval: true}
	if len(elements) > 0 {
		s.keyLength = len(elements[0].key)
	}
	for _, part := range [][]element{elements[:len(elements)/2], elements[len(elements)/2:]} {
		var list []byte
		for _, el := range part {
			list = dumpElement(list, el)
		}
		s.addElements(list)
	}
	return s
}

// dumpElement encodes an element like the kernel (nf_tables_fill_setelem in
// net/netfilter/nf_tables_api.c), with the flags last.
func dumpElement(list []byte, el element) []byte {
	m := messages{buf: list, asDumped: true}
	n := m.beginNest(unix.NFTA_LIST_ELEM)
	m.addData(unix.NFTA_SET_ELEM_KEY, el.key)
	if el.end {
		m.addNumber(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	m.endNest(n)
	return m.buf
}

func formatRanges(ranges []netipx.IPRange) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}

// TestOnlySupportedIntervalsAreReadAsAddresses covers sets and elements of other programs, and
// elements that the kernel never sends.
func TestOnlySupportedIntervalsAreReadAsAddresses(t *testing.T) {
	start, end := element{[]byte{10, 0, 0, 0}, false}, element{[]byte{11, 0, 0, 0}, true}
	for _, row := range []struct {
		name     string
		elements []element
		change   func(*decodedSet)
	}{
		{"no elements", nil, nil},
		{"single addresses", []element{start, end}, func(s *decodedSet) { s.interval = false }},
		{"an unsupported set", []element{start, end}, func(s *decodedSet) {
			s.unsupportedReason = "set with flags 0x10"
		}},
		{"an unsupported element", []element{start, end}, func(s *decodedSet) {
			var m messages
			el := m.beginNest(unix.NFTA_LIST_ELEM)
			m.addData(unix.NFTA_SET_ELEM_KEY, []byte{9, 0, 0, 0})
			m.addAttr(nftaSetElemExpressions, nil)
			m.endNest(el)
			s.addElements(m.buf)
		}},
		{"an element without key", []element{start, end}, func(s *decodedSet) {
			s.addElements([]byte{4, 0, unix.NFTA_LIST_ELEM, 0})
		}},
		{"ports", []element{{[]byte{0, 80}, false}, {[]byte{0, 90}, true}}, nil},
		{"an address with a port", []element{{[]byte{10, 0, 0, 0, 0, 80}, false}}, nil},
		{"an end with another length", []element{start, {[]byte{11}, true}}, nil},
		{"an end with the other family's length", []element{start, {make([]byte, 16), true}}, nil},
		{"a duplicate address", []element{start, start, end}, nil},
		{"empty keys", []element{{[]byte{}, false}, {[]byte{}, true}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 2 {
				s := dumped(row.elements)
				if row.change != nil {
					row.change(s)
				}
				if got := s.addrRanges(); len(got) > 0 {
					t.Errorf("decoded as the addresses %s, want none", formatRanges(got))
				}
				slices.Reverse(row.elements)
			}
		})
	}
}

// TestDecodedAddressesEqualTheDecodedKeys compares the two decoders of interval sets, for sets of
// few adjacent addresses, possibly with inconsistent elements.
func TestDecodedAddressesEqualTheDecodedKeys(t *testing.T) {
	nearElement := rapid.Custom(func(t *rapid.T) element {
		last := rapid.SampledFrom([]byte{0, 1, 2, 3, 254, 255}).Draw(t, "address")
		return element{[]byte{last & 0x80, 0, 0, last}, rapid.Bool().Draw(t, "end")}
	})
	rapid.Check(t, func(t *rapid.T) {
		elements := rapid.SliceOfNDistinct(nearElement, 1, 8, func(e element) string {
			return fmt.Sprint(e)
		}).Draw(t, "elements")
		switch rapid.IntRange(0, 2).Draw(t, "order") {
		case 1: // descending, like a dump of the kernel
			slices.SortFunc(elements, compareElements)
			slices.Reverse(elements)
		case 2: // ascending
			slices.SortFunc(elements, compareElements)
		}
		keys, err := dumped(elements).keys()
		if err != nil {
			t.Fatal(err)
		}
		m, ok := addrMatch(rules.IPv4, fieldDestination, false, values{keys: keys})
		readable := ok && len(keys) > 0
		s := dumped(elements)
		got := s.addrRanges()
		if readable != (len(got) > 0) {
			t.Fatalf("addrRanges decoded the set as %q, but addrMatch decoded it: %t",
				formatRanges(got), readable)
		}
		if !readable {
			return
		}
		want := m.(rules.MatchAddr).Ranges
		if formatRanges(got) != formatRanges(want) {
			t.Fatalf("addresses %s, want %s as decoded from the keys", formatRanges(got),
				formatRanges(want))
		}
		// The dumped elements equal the elements of the encoder if and only if both lists have the
		// same length.
		encoded := addrElements(rules.MatchAddr{Ranges: got})
		slices.SortFunc(elements, compareElements)
		same := slices.EqualFunc(elements, encoded, func(a, b element) bool {
			return compareElements(a, b) == 0
		})
		if len(encoded) != addrElementCount(got) || same != (s.size() == len(encoded)) {
			t.Fatalf("%s: %d dumped and %d encoded elements, equal: %t, addrElementCount %d; want "+
				"equal elements only for equal counts, and the encoded count as addrElementCount",
				formatRanges(got), s.size(), len(encoded), same, addrElementCount(got))
		}
	})
}

// TestACommentIsFoundAmongOtherUserdata covers entries of other types, which newer versions of the
// nft command may store.
func TestACommentIsFoundAmongOtherUserdata(t *testing.T) {
	const kind = udataComment
	plain := []byte{kind, 4, 'w', 'h', 'y', 0}
	for _, row := range []struct {
		name string
		data []byte
		want string
	}{
		{"only a comment", plain, "why"},
		{"a comment after another entry", append([]byte{9, 3, 1, 2, 3}, plain...), "why"},
		{"a comment before another entry", append(slices.Clone(plain), 9, 1, 1), "why"},
		{"no comment", []byte{9, 1, 1}, ""},
		{"a truncated comment", plain[:3], ""},
		{"a comment without its terminating zero", []byte{kind, 3, 'w', 'h', 'y'}, "why"},
		{"no userdata", nil, ""},
	} {
		if diff := cmp.Diff(row.want, comment(row.data)); diff != "" {
			t.Errorf("%s, -want +got\n%s", row.name, diff)
		}
	}
}

// TestRegistersOverlap covers the two sets of register numbers for the same memory: a 16-byte
// register consists of four 4-byte registers.
func TestRegistersOverlap(t *testing.T) {
	var d ruleDecoder
	store := func(number uint32, op operand) {
		var m messages
		m.addNumber(1, number)
		if err := d.store(m.buf, 1, op); err != nil {
			t.Fatal(err)
		}
	}
	load := func(number uint32) field {
		var m messages
		m.addNumber(1, number)
		return d.load(m.buf, 1).field
	}
	for _, step := range []struct {
		name string
		do   func()
		want map[uint32]field
	}{
		{"the first 16 bytes", func() {
			store(1, operand{field: fieldSource, length: 16})
		}, map[uint32]field{1: fieldSource, 8: fieldSource, 9: fieldNone}},
		{"the third 4 bytes", func() {
			store(10, operand{field: fieldMark, length: 4})
		}, map[uint32]field{1: fieldNone, 8: fieldNone, 10: fieldMark}},
		{"the next 16 bytes", func() {
			store(2, operand{field: fieldIn, length: 16})
		}, map[uint32]field{2: fieldIn, 12: fieldIn, 10: fieldMark}},
		{"the first 4 bytes", func() {
			store(8, operand{field: fieldUID, length: 4})
		}, map[uint32]field{1: fieldUID, 10: fieldMark, 2: fieldIn}},
		{"5 bytes, which occupy two registers", func() {
			store(1, operand{field: fieldGID, length: 5})
		}, map[uint32]field{1: fieldGID, 9: fieldNone, 10: fieldMark}},
		// These numbers denote no registers.
		{
			"all stores", func() {},
			map[uint32]field{0: fieldNone, 5: fieldNone, 24: fieldNone, 1 << 31: fieldNone},
		},
	} {
		step.do()
		for number, want := range step.want {
			if got := load(number); got != want {
				t.Errorf("after %s: register %d contains field %d, want %d", step.name, number, got,
					want)
			}
		}
	}
}

// TestFastElementDecoderEqualsTheGeneralOne compares plainFormat with the general decoder of
// elements, which decodes all elements that plainFormat rejects.
func TestFastElementDecoderEqualsTheGeneralOne(t *testing.T) {
	write := func(key []byte, rest func(*messages)) attributes {
		m := messages{asDumped: true}
		m.addData(unix.NFTA_SET_ELEM_KEY, key)
		if rest != nil {
			rest(&m)
		}
		return m.buf
	}
	flags := func(n uint32) func(*messages) {
		return func(m *messages) { m.addNumber(unix.NFTA_SET_ELEM_FLAGS, n) }
	}
	ipv4, ipv6 := []byte{10, 0, 0, 1}, make([]byte, 16)
	for _, row := range []struct {
		name  string
		a     attributes
		plain bool
	}{
		{"a key", write(ipv4, nil), true},
		{"the end of an interval", write(ipv4, flags(unix.NFT_SET_ELEM_INTERVAL_END)), true},
		{"flags without the end of an interval", write(ipv4, flags(0)), true},
		{
			"a key with the flag of a catch-all element", write(ipv4, flags(nftSetElemCatchall)),
			false,
		},
		{"a key with another length", write(ipv6, nil), false},
		{"an expression", write(ipv4, func(m *messages) {
			m.addAttr(nftaSetElemExpressions, nil)
		}), false},
		{"a number that is not the flags", write(ipv4, func(m *messages) {
			m.addNumber(unix.NFTA_SET_ELEM_TIMEOUT, 1)
		}), false},
		{"an attribute after the flags", write(ipv4, func(m *messages) {
			flags(1)(m)
			m.addAttr(nftaSetElemExpressions, nil)
		}), false},
		{"bytes after the key", append(write(ipv4, nil), 0, 0), false},
		{"a truncated key", write(ipv4, nil)[:10], false},
		{"no data", nil, false},
	} {
		got, ok := newPlainFormat(4).read(row.a)
		if ok != row.plain {
			t.Errorf("%s: decoded by the fast decoder: %t, want %t", row.name, ok, row.plain)
		}
		if want, _ := new(decodedSet).read(row.a); ok && (string(got.key) != string(want.key) ||
			got.end != want.end) {
			t.Errorf("%s: %v, want %v as by the general decoder", row.name, got, want)
		}
	}
}
