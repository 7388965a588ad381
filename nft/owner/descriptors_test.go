package owner_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-mesh/sluice/nft/owner"
)

func TestDescriptors(t *testing.T) {
	dir := t.TempDir()
	if got := slices.Collect(owner.Descriptors(dir)); len(got) > 0 {
		t.Errorf("a process that has ended: descriptors %q, want none", got)
	}
	fds := filepath.Join(dir, "fd")
	if err := os.Mkdir(fds, 0o700); err != nil {
		t.Fatal(err)
	}
	const open = 3000 // more than are listed at a time
	var want []string
	for i := range open {
		want = append(want, filepath.Join(fds, strconv.Itoa(i)))
		if err := os.Symlink("socket:[1]", want[i]); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(owner.Descriptors(dir)); !slices.Equal(got, want) {
		t.Errorf("%d descriptors, want %d", len(got), open)
	}
	for range owner.Descriptors(dir) {
		break // the iteration can end early
	}
}
