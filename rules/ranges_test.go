package rules_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

func TestNormalize(t *testing.T) {
	for _, tc := range []struct {
		name  string
		input []rules.PortRange
		want  string
	}{
		{"nothing", nil, "[]"},
		{"order", []rules.PortRange{{443, 443}, {80, 80}}, "[80 443]"},
		{"duplicates", []rules.PortRange{{80, 80}, {80, 80}}, "[80]"},
		{"a number within a range", []rules.PortRange{{80, 90}, {85, 85}}, "[80-90]"},
		{"ranges within a range", []rules.PortRange{{80, 90}, {80, 85}, {70, 100}}, "[70-100]"},
		{"overlap", []rules.PortRange{{80, 90}, {90, 100}}, "[80-100]"},
		{"adjacent ranges", []rules.PortRange{{91, 100}, {80, 90}}, "[80-100]"},
		{"adjacent numbers are not merged", []rules.PortRange{{81, 81}, {80, 80}}, "[80 81]"},
		{
			"a number next to a range is not merged",
			[]rules.PortRange{{80, 90}, {91, 91}},
			"[80-90 91]",
		},
		{"all", []rules.PortRange{{0, 65535}, {0, 0}, {65535, 65535}}, "[0-65535]"},
	} {
		before := fmt.Sprint(tc.input)
		if got := fmt.Sprint(rules.Normalize(tc.input)); got != tc.want {
			t.Errorf("%s: %s becomes %s, want %s", tc.name, before, got, tc.want)
		}
		if after := fmt.Sprint(tc.input); after != before {
			t.Errorf("%s: Normalize changes its argument from %s to %s", tc.name, before, after)
		}
	}
}

func TestNormalizeKeepsTheNumbers(t *testing.T) {
	edge := rapid.OneOf(rapid.Uint32Range(0, 20),
		rapid.Uint32Range(math.MaxUint32-5, math.MaxUint32))
	rapid.Check(t, func(t *rapid.T) {
		var ranges []rules.IDRange
		for range rapid.IntRange(0, 6).Draw(t, "ranges") {
			a, b := edge.Draw(t, "a"), edge.Draw(t, "b")
			ranges = append(ranges, rules.IDRange{First: min(a, b), Last: max(a, b)})
		}
		got := rules.Normalize(ranges)
		n := edge.Draw(t, "number")
		want := false
		for _, r := range ranges {
			want = want || r.Contains(n)
		}
		if rules.Contains(got, n) != want {
			t.Fatalf("%v becomes %v: contains %d is %t, want %t", ranges, got, n, !want, want)
		}
		if second := rules.Normalize(got); fmt.Sprint(second) != fmt.Sprint(got) {
			t.Fatalf("%v becomes %v, but that becomes %v when normalized again", ranges, got, second)
		}
	})
}

func TestAddrRanges(t *testing.T) {
	for _, tc := range []struct{ name, prefixes, want string }{
		{"nothing", "", "[]"},
		{"host bits are ignored", "10.1.2.3/8", "[10.0.0.0-10.255.255.255]"},
		{
			"order and duplicates", "11.0.0.0/8,9.0.0.0/8,11.0.0.0/8",
			"[9.0.0.0-9.255.255.255 11.0.0.0-11.255.255.255]",
		},
		{"a prefix within another", "10.0.0.0/8,10.1.0.0/16", "[10.0.0.0-10.255.255.255]"},
		{"adjacent prefixes", "10.1.0.0/16,10.0.0.0/16", "[10.0.0.0-10.1.255.255]"},
		{"up to the last address", "255.0.0.0/8,255.255.255.255/32", "[255.0.0.0-255.255.255.255]"},
		{
			"all of both families", "::/0,0.0.0.0/0,ffff::/16",
			"[0.0.0.0-255.255.255.255 ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
		},
		{
			"a mapped prefix is IPv6", "::ffff:10.1.2.3/104",
			"[::ffff:10.0.0.0-::ffff:10.255.255.255]",
		},
		{
			"a mapped prefix wider than IPv4 is IPv6", "::ffff:10.1.2.3/81",
			"[::8000:0:0-::ffff:255.255.255.255]",
		},
	} {
		if got := fmt.Sprint(
			rules.AddrRanges(must(rules.ParsePrefixes(tc.prefixes)))); got != tc.want {
			t.Errorf("%s: %s becomes %s, want %s", tc.name, tc.prefixes, got, tc.want)
		}
	}
}

func TestNormalizeAddrsMergesAdjacentRanges(t *testing.T) {
	got := rules.NormalizeAddrs([]netipx.IPRange{
		netipx.MustParseIPRange("10.0.0.5-10.0.0.9"), netipx.MustParseIPRange("10.0.0.1-10.0.0.4"),
		netipx.MustParseIPRange("10.0.0.11-10.0.0.12"),
	})
	const want = "[10.0.0.1-10.0.0.9 10.0.0.11-10.0.0.12]"
	if text := fmt.Sprint(got); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestAddrRangesContainExactlyThePrefixes(t *testing.T) {
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		if rapid.Bool().Draw(t, "IPv6") {
			a := [16]byte{0: rapid.Byte().Draw(t, "first"), 15: rapid.Byte().Draw(t, "last")}
			return netip.PrefixFrom(netip.AddrFrom16(a), rapid.IntRange(0, 128).Draw(t, "bits"))
		}
		a := [4]byte{0: rapid.Byte().Draw(t, "first"), 3: rapid.Byte().Draw(t, "last")}
		return netip.PrefixFrom(netip.AddrFrom4(a), rapid.IntRange(0, 32).Draw(t, "bits"))
	})
	rapid.Check(t, func(t *rapid.T) {
		prefixes := rapid.SliceOfN(prefix, 0, 6).Draw(t, "prefixes")
		a := prefix.Draw(t, "address").Addr()
		want, got := false, false
		for _, p := range prefixes {
			want = want || p.Masked().Contains(a)
		}
		for _, r := range rules.AddrRanges(prefixes) {
			got = got || r.Contains(a)
		}
		if got != want {
			t.Fatalf("%v becomes %v: contains %s is %t, want %t", prefixes,
				rules.AddrRanges(prefixes), a, got, want)
		}
	})
}
