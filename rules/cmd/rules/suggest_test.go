package main

import "testing"

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
			t.Errorf("for %q: got %q, want %q", wrong, got, want)
		}
	}
}
