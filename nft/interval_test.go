package nft

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestIntervalsOfEveryKindAreReadAsTheyWereApplied covers prefixes that overlap or are adjacent,
// and prefixes at the ends of the address space.
func TestIntervalsOfEveryKindAreReadAsTheyWereApplied(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	for _, row := range []struct {
		name     string
		prefixes []netip.Prefix
		// ranges is the expected number of ranges in both families together.
		ranges int
	}{
		{
			"overlapping prefixes",
			prefixList("10.0.0.0/8", "10.1.0.0/16", "192.168.0.0/16", "fd00::/8", "fd00:1::/32",
				"fe80::/10"),
			4,
		},
		{
			"overlapping prefixes, the shorter one last",
			prefixList("10.1.0.0/16", "10.0.0.0/8", "192.168.0.0/16"), 2,
		},
		{
			"adjacent prefixes",
			prefixList("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.9.0.0/16", "fd00::/64",
				"fd00:0:0:1::/64", "fe80::/10"),
			4,
		},
		{"duplicate prefixes", prefixList("10.0.0.0/8", "10.0.0.0/8", "10.2.3.4/8", "192.168.0.0/16"), 2},
		{
			"prefixes separated by one address",
			prefixList("10.0.0.0/32", "10.0.0.2/32", "10.0.0.4/31", "10.0.0.7/32"), 4,
		},
		{"the first address", prefixList("0.0.0.0/32", "10.0.0.0/8", "::/128", "fd00::/8"), 4},
		{
			"the last address",
			prefixList("10.0.0.0/8", "255.255.255.255/32", "fd00::/8",
				"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
			4,
		},
		{
			"only the last address",
			prefixList("255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), 2,
		},
		{"both ends of the address space", prefixList("0.0.0.0/8", "255.0.0.0/8", "::/8", "ff00::/8"), 4},
		{
			"up to the last address",
			prefixList("10.0.0.0/8", "128.0.0.0/1", "fd00::/8", "8000::/2", "c000::/3"), 4,
		},
		{"all addresses", prefixList("0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8"), 2},
		{"all addresses in two halves", prefixList("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"), 2},
		{"all but one address", allExcept(netip.MustParseAddr("10.0.0.1")), 2},
		{
			"IPv4-mapped prefixes",
			prefixList("::ffff:10.0.0.0/104", "192.168.0.0/16", "::ffff:192.168.0.0/120",
				"fd00::/8", "fe80::/10"),
			4,
		},
		{"a prefix that includes the mapped addresses", prefixList("::ffff:0.0.0.0/90", "fd00::/8"), 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			rs := excluding(row.prefixes...)
			ranges := 0
			for _, m := range excludedMatches(rs) {
				ranges += len(m.Ranges)
			}
			if ranges != row.ranges {
				t.Errorf("%d ranges, want %d:\n%s", ranges, row.ranges, rs)
			}
			if _, err := Apply(ns, rs); err != nil {
				t.Fatal(err)
			}
			checkRuleset(t, ns, rs)
		})
	}
}

// TestIntervalsOfRandomNumbersAreReadAsTheyWereApplied covers sets of ports, ids and prefixes. The
// kernel compares ids byte by byte.
func TestIntervalsOfRandomNumbersAreReadAsTheyWereApplied(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	rapid.Check(t, func(t *rapid.T) {
		rs := compileWith(func(r *rules.Redirect) {
			captureAll(r)
			r.InboundExcludePorts = rapid.SliceOfN(anyPorts(), 1, 30).Draw(t, "ports")
			r.ProxyUIDs = rapid.SliceOfN(anyIDs(), 1, 30).Draw(t, "users")
			r.OutboundExcludeCIDRs = rapid.SliceOfN(anyPrefix(), 1, 30).Draw(t, "destinations")
			r.IPv6 = true
		})
		if _, err := Apply(ns, rs); err != nil {
			t.Fatal(err)
		}
		checkRuleset(t, ns, rs)
		mustApply(t, ns, rs, Unchanged)
	})
}

func TestTenThousandPrefixesOfEachFamilyAreOneTransaction(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	rs := manyPrefixes(0, 10_000)
	before := generationOf(t, ns)
	result := mustApply(t, ns, rs, Created)
	if after := generationOf(t, ns); after != before+1 {
		t.Errorf("generation %d, then %d, want one transaction", before, after)
	}
	if result.Elements != 20_000 || result.Sets != 2 {
		t.Errorf("result %+v, want 20000 elements in 2 sets", result)
	}
	checkRuleset(t, ns, rs)
	mustApply(t, ns, rs, Unchanged)
}

// excluding returns the ruleset that excludes the destinations, in a dual-stack pod.
func excluding(prefixes ...netip.Prefix) rules.Ruleset {
	return compileWith(func(r *rules.Redirect) {
		captureAll(r)
		r.IPv6, r.OutboundExcludeCIDRs = true, prefixes
	})
}

// excludedMatches returns the matches of the excluded destinations.
func excludedMatches(rs rules.Ruleset) []rules.MatchAddr {
	var found []rules.MatchAddr
	for _, c := range rs.Tables[0].Chains {
		for _, r := range c.Rules {
			for _, m := range r.Matches {
				if addr, ok := m.(rules.MatchAddr); ok && r.Comment == "excluded outbound address" {
					found = append(found, addr)
				}
			}
		}
	}
	return found
}

// allExcept returns prefixes that together contain all IPv4 addresses except one.
func allExcept(excluded netip.Addr) []netip.Prefix {
	var list []netip.Prefix
	for bits := 1; bits <= 32; bits++ {
		sibling := netip.PrefixFrom(excluded, bits).Masked().Addr().As4()
		sibling[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
		list = append(list, netip.PrefixFrom(netip.AddrFrom4(sibling), bits))
	}
	return list
}

// manyPrefixes returns the ruleset that excludes n prefixes of each family: prefix4(first),
// prefix6(first) and the following ones. No two of the prefixes are adjacent.
func manyPrefixes(first, n int) rules.Ruleset {
	var list []netip.Prefix
	for i := first; i < first+n; i++ {
		list = append(list, prefix4(i), prefix6(i))
	}
	return excluding(list...)
}

// prefix4 returns 20.0.0.0/24 for 0, 20.0.2.0/24 for 1, and so on: every second /24.
func prefix4(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{
		byte(20 + i>>15), byte(i >> 7), byte(i << 1), 0,
	}), 24)
}

// prefix6 returns fd00::/56 for 0, fd00:0:0:200::/56 for 1, and so on: every second /56.
func prefix6(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{
		0xfd, 0, 0, 0, byte(i >> 15), byte(i >> 7), byte(i << 1),
	}), 56)
}
