package dirwatch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

// TestRenewWatchesTheDirectoriesWithTheNames checks that after any renames Renew watches exactly
// the directories that have the names at that time.
func TestRenewWatchesTheDirectoriesWithTheNames(t *testing.T) {
	root := newLinkedDir(t, map[string]string{
		"dir/a": "../real/file", "dir/b": "../other/file", "dir/c": "../hops/old",
	})
	behind := []string{"real", "other", "hops"}
	links := []string{
		filepath.Join(root, "dir/a"), filepath.Join(root, "dir/b"), filepath.Join(root, "dir/c"),
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := dirwatch.New(func() {}, filepath.Join(root, "dir"))
		defer w.Close()
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			one, other := rapid.IntRange(0, 2).Draw(rt, "one"),
				rapid.IntRange(0, 2).Draw(rt, "other")
			if rapid.Bool().Draw(rt, "swap") {
				swap(t, filepath.Join(root, behind[one]), filepath.Join(root, behind[other]))
				continue
			}
			if err := w.Renew(links[min(one, other) : max(one, other)+1]...); err != nil {
				rt.Fatal(err)
			}
			want := []uint64{inode(t, root, "dir")}
			for _, name := range behind[min(one, other) : max(one, other)+1] {
				want = append(want, inode(t, root, name))
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, watchedInodes(t)); diff != "" {
				rt.Fatalf("watched inodes (-want +got):\n%s", diff)
			}
		}
	})
	if left := watchedInodes(t); len(left) != 0 {
		t.Errorf("after Close the inodes %v are still watched", left)
	}
}

func swap(t *testing.T, one, other string) {
	t.Helper()
	if one == other {
		return
	}
	for _, move := range [][2]string{{one, one + ".old"}, {other, one}, {one + ".old", other}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
}
