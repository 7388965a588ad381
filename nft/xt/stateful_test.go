package xt_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTextOfStatefulMatches checks that the text of a match is the text of iptables-save, with the
// average where iptables-save prints different matches in the same way.
func TestTextOfStatefulMatches(t *testing.T) {
	random := func(probability uint32, flags uint16) []byte {
		return pack(uint16(0), flags, numbers(probability, 0, 0))
	}
	for _, tc := range []struct {
		match string
		data  []byte
		want  string
	}{
		{"limit", numbers(2000, 5), "-m limit --limit 5/sec --limit-burst 5"},
		{"limit", numbers(85714, 3), "-m limit --limit 7/min --limit-burst 3"},
		{"limit", numbers(12000000, 5), "-m limit --limit 3/hour --limit-burst 5"},
		{"limit", numbers(864000000, 1), "-m limit --limit 1/day --limit-burst 1"},
		{"limit", numbers(1, 10000), "-m limit --limit 10000/sec --limit-burst 10000"},
		// iptables-save prints these averages as the nearest rate, without the average.
		{"limit", numbers(85715, 3), "-m limit --limit 10079/day (85715) --limit-burst 3"},
		{"limit", numbers(1<<32-1, 3), "-m limit --limit 0/day (4294967295) --limit-burst 3"},
		{"statistic", random(1<<29, 0), "-m statistic --mode random --probability 0.25000000000"},
		{"statistic", random(1, 1), "-m statistic --mode random ! --probability 0.00000000047"},
		{
			"statistic", pack(uint16(1), uint16(0), numbers(2, 1, 7)),
			"-m statistic --mode nth --every 3 --packet 1",
		},
		{
			"statistic", pack(uint16(1), uint16(1), numbers(2, 0, 0)),
			"-m statistic --mode nth ! --every 3 --packet 0",
		},
		{"statistic", pack(uint16(1), uint16(2), numbers(2, 0, 0)), "match statistic revision 0"},
		{"statistic", pack(uint16(2), uint16(0), numbers(2, 0, 0)), "match statistic revision 0"},
	} {
		u := xt.DecodeMatch(&rules.Rule{}, rules.IPv4, xt.Extension{
			Name: tc.match, Data: tc.data,
		})[0].(rules.Unknown)
		if u.Text != tc.want {
			t.Errorf("%s %x: %q, want %q", tc.match, tc.data, u.Text, tc.want)
		}
	}
}
