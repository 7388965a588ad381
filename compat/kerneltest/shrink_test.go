package kerneltest

import (
	"errors"
	"testing"
)

// TestShrinkReportsErrorsAndFailuresThatDoNotRepeat verifies that an error of the first repetition
// is not reported as a failure that does not repeat: tests ignore such failures.
func TestShrinkReportsErrorsAndFailuresThatDoNotRepeat(t *testing.T) {
	failed := errors.New("cannot send")
	for _, tc := range []struct {
		name  string
		fails func(Ruleset) (bool, error)
		want  error
	}{
		{
			"the first repetition returns an error",
			func(Ruleset) (bool, error) { return false, failed }, failed,
		},
		{
			"the failure does not repeat",
			func(Ruleset) (bool, error) { return false, nil }, ErrNotRepeated,
		},
		{
			"the failure repeats with every ruleset",
			func(Ruleset) (bool, error) { return true, nil }, nil,
		},
	} {
		// The error of a repetition must not also be ErrNotRepeated.
		got := shrink(Ruleset{{Program: NFT}}, Ruleset.smaller, tc.fails)
		if !errors.Is(got, tc.want) || errors.Is(got, ErrNotRepeated) != errors.Is(tc.want, ErrNotRepeated) {
			t.Errorf("%s: shrink returns %v, want %v", tc.name, got, tc.want)
		}
	}
}
