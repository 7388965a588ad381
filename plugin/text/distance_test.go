package text_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/plugin/text"
)

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int // 4 for every distance above the limit of 3
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"apply", "apply", 0},
		{"aply", "apply", 1},
		{"chekc", "check", 2},
		{"kitten", "sitting", 3},
		{"diff", "status", 4},
		{"a", "abcdefgh", 4},
	} {
		for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
			if got := min(text.Distance(pair[0], pair[1], 3), 4); got != tc.want {
				t.Errorf("%q to %q: %d, want %d", pair[0], pair[1], got, tc.want)
			}
		}
	}
}
