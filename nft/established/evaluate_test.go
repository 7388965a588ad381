package established

import (
	"math"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestRepresentativeIDsContainAnIDOutsideAllRanges(t *testing.T) {
	const last = math.MaxUint32
	for _, row := range []struct {
		name   string
		ranges []rules.IDRange
		want   []uint32
	}{
		{"no range", nil, []uint32{0}},
		{"a range above 0", []rules.IDRange{{First: 5, Last: 9}}, []uint32{5, 9, 0}},
		{"adjacent ids from 0", rules.Singles[uint32](0, 1, 2), []uint32{0, 1, 2, 3}},
		{"a range up to the last id", []rules.IDRange{{First: 1, Last: last}}, []uint32{1, last, 0}},
		{"all ids", []rules.IDRange{{First: 0, Last: last}}, []uint32{0, last}},
	} {
		rs := &rules.Ruleset{Tables: []rules.Table{{Chains: []rules.Chain{{Rules: []rules.Rule{
			{Matches: []rules.Match{rules.MatchOwner{Group: true, IDs: row.ranges}}},
		}}}}}}
		if got := representativeIDs(rs, true); !slices.Equal(got, row.want) {
			t.Errorf("%s: representative groups %v, want %v", row.name, got, row.want)
		}
	}
}
