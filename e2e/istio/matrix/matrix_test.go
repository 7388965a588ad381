package matrix_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
)

func TestThereAreAtLeast300(t *testing.T) {
	if n := len(matrix.Alone()); n < 300 {
		t.Errorf("%d configurations of one parameter", n)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range append(matrix.Alone(), matrix.Random(1, 400)...) {
		if seen[c.Name] {
			t.Errorf("two configurations have the name %s", c.Name)
		}
		seen[c.Name] = true
	}
}

func TestASeedYieldsTheSameEachTime(t *testing.T) {
	if d := cmp.Diff(matrix.Random(3, 20), matrix.Random(3, 40)[:20]); d != "" {
		t.Errorf("the first twenty of twenty and of forty (-20 +40):\n%s", d)
	}
	if cmp.Equal(matrix.Random(3, 5), matrix.Random(4, 5)) {
		t.Error("another seed yields the same")
	}
}
