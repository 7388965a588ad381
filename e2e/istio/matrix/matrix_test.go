package matrix_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
)

func TestSingleReturnsAtLeast300Configurations(t *testing.T) {
	if n := len(matrix.Single()); n < 300 {
		t.Errorf("%d configurations, want at least 300", n)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range append(matrix.Single(), matrix.Random(1, 400)...) {
		if seen[c.Name] {
			t.Errorf("two configurations have the name %s", c.Name)
		}
		seen[c.Name] = true
	}
}

func TestRandomIsDeterministic(t *testing.T) {
	if d := cmp.Diff(matrix.Random(3, 20), matrix.Random(3, 40)[:20]); d != "" {
		t.Errorf("the first 20 configurations of Random differ (-n=20 +n=40)\n%s", d)
	}
	if cmp.Equal(matrix.Random(3, 5), matrix.Random(4, 5)) {
		t.Error("another seed returns the same configurations")
	}
}
