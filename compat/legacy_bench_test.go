package compat_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
)

// manyPrefixes returns n prefixes for each family. No two of the prefixes can be merged.
func manyPrefixes(n int) []netip.Prefix {
	var list []netip.Prefix
	for i := range n {
		list = append(list,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 7), byte(i << 1), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 1, 2: byte(i >> 7), 3: byte(i << 1)}),
				32))
	}
	return list
}

func TestTranslateTakesLittleTimeForManyPrefixes(t *testing.T) {
	r := sidecar(dual)
	r.OutboundExcludeCIDRs = manyPrefixes(10_000)
	rs := rules.MustCompile(r)
	var legacy compat.Legacy
	var err error
	// Translate takes about 20 ms. Searching all prefixes for each prefix would take more than a
	// second.
	budgettest.Bound{Processor: time.Second, Allocated: 1 << 30}.Check(t, "Translate", func() {
		legacy, err = compat.Translate(rs)
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each prefix becomes a rule that returns. A few rules return for other reasons.
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if n := strings.Count(strings.Join(listing(legacy, f), "\n"), " return"); n < 10_000 ||
			n > 10_010 {
			t.Errorf("family %s has %d rules that return, want 10,000 to 10,010", f, n)
		}
	}
}

func BenchmarkTranslate(b *testing.B) {
	for _, n := range []int{0, 1000, 10_000} {
		r := sidecar(dual)
		r.OutboundExcludeCIDRs = manyPrefixes(n)
		rs := rules.MustCompile(r)
		b.Run(fmt.Sprintf("prefixes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := compat.Translate(rs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	r := sidecar(dual)
	r.OutboundExcludeCIDRs = manyPrefixes(10_000)
	legacy, err := compat.Translate(rules.MustCompile(r))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, table := range legacy.Tables {
			for _, c := range table.Chains {
				for i := range c.Rules {
					if _, err := compat.EncodeRule(table.Family, &c.Rules[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	}
}
