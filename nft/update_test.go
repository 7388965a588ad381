package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAChangeOfSomePrefixesUpdatesTheSetInPlace changes two sets: of the 1,000 prefixes
// 20.0.0.0/24, 20.0.2.0/24 and so on, and of 1,000 IPv6 prefixes. Some elements start or end at the
// same key as an element that is kept.
func TestAChangeOfSomePrefixesUpdatesTheSetInPlace(t *testing.T) {
	const n = 1000
	var base []netip.Prefix
	for i := range n {
		base = append(base, prefix4(i), prefix6(i))
	}
	// replace returns the prefixes without prefix4(i), and with others instead.
	replace := func(i int, others ...netip.Prefix) []netip.Prefix {
		return append(slices.Delete(slices.Clone(base), 2*i, 2*i+1), others...)
	}
	add := func(more ...netip.Prefix) []netip.Prefix { return append(slices.Clone(base), more...) }
	for _, row := range []struct {
		name     string
		prefixes []netip.Prefix
		// elements is the maximum number of added and deleted elements, including ends of
		// intervals.
		elements int
	}{
		{"an additional prefix in the middle", add(prefixList("20.3.1.7/32")...), 2},
		{"an additional prefix at the beginning of the address space", add(prefixList("0.0.0.0/32")...), 2},
		{"an additional prefix at the end of the address space", add(prefixList("255.255.255.255/32")...), 1},
		{"a missing prefix at the beginning", replace(0), 2},
		{"a missing prefix at the end", replace(n - 1), 2},
		{"a missing prefix in the middle", replace(n / 2), 2},
		{"a replaced prefix", replace(n/2, prefixList("30.0.0.0/24")...), 4},
		{"a prefix grows up to the next one", replace(10, prefixList("20.0.20.0/23")...), 6},
		{"a prefix fills the gap between two others", add(prefixList("20.0.1.0/24")...), 6},
		{"a prefix adjacent to the previous one", add(prefixList("20.0.1.0/25")...), 4},
		{"a prefix adjacent to the next one", add(prefixList("20.0.1.128/25")...), 4},
		{"a prefix shrinks to its first half", replace(10, prefixList("20.0.20.0/25")...), 4},
		{"a prefix shrinks to its second half", replace(10, prefixList("20.0.20.128/25")...), 4},
		{"a prefix is split", replace(10, prefixList("20.0.20.0/26", "20.0.20.128/25")...), 6},
		{"a prefix includes hundreds of others", add(prefixList("20.1.0.0/16")...), 2*128 + 2},
		{
			"both families",
			add(prefixList("30.0.0.0/8", "fe80::/10",
				"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")...),
			2 + 2 + 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			from, to := excluding(base...), excluding(row.prefixes...)
			mustApply(t, ns, from, Created)
			for _, step := range []rules.Ruleset{to, from} { // change and undo
				before := generationOf(t, ns)
				result := mustApply(t, ns, step, Updated)
				if after := generationOf(t, ns); after != before+1 {
					t.Errorf("generation %d, then %d, want one transaction", before, after)
				}
				// An IPv6 element takes 36 bytes, an IPv4 element less.
				if bytes := 300 + 36*row.elements; result.Bytes > bytes {
					t.Errorf("%d bytes sent, want at most %d", result.Bytes, bytes)
				}
				checkRuleset(t, ns, step)
				mustApply(t, ns, step, Unchanged)
			}
		})
	}
}

// TestOutcomeOfAChangeOfPrefixes covers a change between a set of prefixes and a single prefix, a
// ruleset that counts packets of older connections, and a missing address of lo.
func TestOutcomeOfAChangeOfPrefixes(t *testing.T) {
	one, two := prefixList("10.0.0.0/24"), prefixList("10.0.0.0/24", "10.0.2.0/24")
	for _, row := range []struct {
		name     string
		from, to rules.Ruleset
		between  func(t *testing.T, ns *netns.NS)
		want     Outcome
		routes   int
	}{
		{
			"two prefixes are reduced to one, which needs no set", excluding(two...), excluding(one...),
			nil, Replaced, 0,
		},
		{"one prefix is replaced by two", excluding(one...), excluding(two...), nil, Replaced, 0},
		{
			"an additional prefix, while older connections are counted",
			keepingEstablished(two...),
			keepingEstablished(prefixList("10.0.0.0/24", "10.0.2.0/24", "10.0.4.0/24")...), nil,
			Updated, 0,
		},
		{
			"an additional prefix after the removal of ::6", manyPrefixes(0, 3), manyPrefixes(1, 3),
			func(t *testing.T, ns *netns.NS) {
				command(t, ns, "", "ip", "-6", "address", "del", "::6/128", "dev", "lo")
			}, Updated, 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, row.from, Created)
			if row.between != nil {
				row.between(t, ns)
			}
			if got := mustApply(t, ns, row.to, row.want); got.Routes != row.routes {
				t.Errorf("%d changes of routes, want %d", got.Routes, row.routes)
			}
			mustApply(t, ns, row.to, Unchanged)
		})
	}
}

func keepingEstablished(prefixes ...netip.Prefix) rules.Ruleset {
	return compileWith(func(r *rules.Redirect) {
		captureAll(r)
		r.OutboundExcludeCIDRs, r.KeepEstablished = prefixes, true
	})
}

// TestRandomChangesOfPrefixes applies sequences of prefix lists in one namespace.
func TestRandomChangesOfPrefixes(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	nearPrefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		// Use few addresses and lengths, so that prefixes are adjacent or contain each other.
		addr := netip.AddrFrom4([4]byte{
			255, 255, 255, byte(rapid.IntRange(0, 31).Draw(t, "address")) << 3,
		})
		return netip.PrefixFrom(addr, rapid.IntRange(26, 32).Draw(t, "bits"))
	})
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfN(rapid.OneOf(nearPrefix, anyPrefix()), 2, 12), 1,
			5).Draw(t, "lists")
		for _, list := range lists {
			rs := excluding(list...)
			if _, err := Apply(ns, rs); err != nil {
				t.Fatal(err)
			}
			checkRuleset(t, ns, rs)
			mustApply(t, ns, rs, Unchanged)
		}
	})
}

// TestUpdateDoesNotChangeOtherElements checks that the messages neither delete nor add the elements
// that are kept. Otherwise a packet could be evaluated without these elements.
func TestUpdateDoesNotChangeOtherElements(t *testing.T) {
	from, to := manyPrefixes(0, 1000).Tables[0], manyPrefixes(1, 1000).Tables[0]
	found := foundTable{
		Table:    from,
		elements: map[string]int{"outbound-exclude-ipv4": 2000, "outbound-exclude-ipv6": 2000},
	}
	changes, onlySetsDiffer := changedSets(&to, &found)
	if !onlySetsDiffer {
		t.Fatal("the tables differ in more than elements")
	}
	tx := encodeUpdate(&to, changes, 1)
	got := map[string]int{}
	for _, m := range split(t, tx.Bytes()) {
		switch m.Header.Type {
		case messageType(unix.NFT_MSG_NEWSETELEM), messageType(unix.NFT_MSG_DELSETELEM):
			attributes(attributes(m.Data[4:]).Get(unix.NFTA_SET_ELEM_LIST_ELEMENTS)).Each(func(
				uint16, []byte,
			) {
				got[messageNames[int(m.Header.Type&0xff)]]++
			})
		}
	}
	// One prefix of each family is deleted and one is added, each with two elements.
	if want := map[string]int{
		"add elements": 4, "delete elements": 4,
	}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("elements by message %v, want %v\n%s", got, want, tx)
	}
}

// TestSetThatAnotherProgramChangedIsRepaired also covers elements that the encoder does not write:
// adjacent intervals, and the end element that the nft command adds before the first
// interval.
func TestSetThatAnotherProgramChangedIsRepaired(t *testing.T) {
	for _, row := range []struct{ name, commands string }{
		{"an additional element", "add element inet sluice outbound-exclude-ipv4 { 30.0.0.0/8 }"},
		{"a missing element", "delete element inet sluice outbound-exclude-ipv4 { 10.0.0.0/24 }"},
		{
			"an element adjacent to another",
			"add element inet sluice outbound-exclude-ipv4 { 10.0.1.0/24 }",
		},
		{
			"an element adjacent to two others",
			"add element inet sluice outbound-exclude-ipv4 { 10.0.1.0-10.0.1.255, 10.0.3.0-10.0.3.255 }",
		},
		{
			"an interval in two parts",
			"delete element inet sluice outbound-exclude-ipv4 { 10.0.0.0/24 }\n" +
				"add element inet sluice outbound-exclude-ipv4 { 10.0.0.0/25 }\n" +
				"add element inet sluice outbound-exclude-ipv4 { 10.0.0.128/25 }",
		},
		{"an empty set", "flush set inet sluice outbound-exclude-ipv4"},
	} {
		for _, next := range []struct {
			name     string
			prefixes []netip.Prefix
		}{
			{"back to the applied prefixes", prefixList("10.0.0.0/24", "10.0.2.0/24", "10.0.9.0/24")},
			{"to a prefix that merges two others", prefixList("10.0.0.0/23", "10.0.2.0/24", "10.0.9.0/24")},
			{"to prefixes without the adjacent ones", prefixList("10.0.9.0/24", "10.0.11.0/24")},
		} {
			t.Run(row.name+" "+next.name, func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				mustApply(t, ns,
					excluding(prefixList("10.0.0.0/24", "10.0.2.0/24", "10.0.9.0/24")...), Created)
				load(t, ns, row.commands)
				want := excluding(next.prefixes...)
				checkRepaired(t, ns, want)
			})
		}
	}
}

// checkRepaired checks that the namespace has the ruleset after one Apply.
func checkRepaired(t *testing.T, ns *netns.NS, want rules.Ruleset) {
	t.Helper()
	if _, err := Apply(ns, want); err != nil {
		t.Fatal(err)
	}
	checkRuleset(t, ns, want)
	mustApply(t, ns, want, Unchanged)
}
