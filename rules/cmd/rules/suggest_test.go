package main

import "testing"

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"apply", "apply", 0},
		{"aply", "apply", 1},
		{"chekc", "check", 2},
		{"diff", "status", 6},
		{"kitten", "sitting", 3},
	} {
		for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
			if got := editDistance(pair[0], pair[1]); got != tc.want {
				t.Errorf("%q to %q: %d, want %d", pair[0], pair[1], got, tc.want)
			}
		}
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"apply", "show", "check", "diff", "netns", "pod", "pod-ip"}
	for wrong, want := range map[string]string{
		"aply":     "; did you mean --apply?",
		"chekc":    "; did you mean --check?",
		"pod-":     "; did you mean --pod?",
		"po":       "; did you mean --pod?",
		"app":      "; did you mean --apply?",
		"x":        "",
		"":         "",
		"nonsense": "",
		"po-ip":    "; did you mean --pod-ip?",
	} {
		if got := didYouMean(wrong, "--", names); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}
