package dirwatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

// TestChangeBehindALinkIsNoticed changes the file to which dir/link leads, without a change in dir.
func TestChangeBehindALinkIsNoticed(t *testing.T) {
	for name, row := range map[string]struct {
		links  map[string]string // target by link
		change func(root string) error
	}{
		"the file is written": {
			map[string]string{"dir/link": "../real/file"},
			func(root string) error {
				return os.WriteFile(filepath.Join(root, "real/file"), []byte("new"), 0o600)
			},
		},
		"the file is replaced": {
			map[string]string{"dir/link": "ROOT/real/file"},
			func(root string) error {
				return os.Rename(filepath.Join(root, "other/file"),
					filepath.Join(root, "real/file"))
			},
		},
		"a link on the path is changed": {
			map[string]string{"dir/link": "../hops/next", "hops/next": "../real/file"},
			func(root string) error {
				return retarget(filepath.Join(root, "hops/next"), "../other/file")
			},
		},
		"a link to a directory on the path is changed": {
			map[string]string{"dir/link": "../hops/./current/file", "hops/current": "../real"},
			func(root string) error {
				return retarget(filepath.Join(root, "hops/current"), "../other")
			},
		},
		"the missing target of a link is created": {
			map[string]string{"dir/link": "../real/none"},
			func(root string) error {
				return os.WriteFile(filepath.Join(root, "real/none"), nil, 0o600)
			},
		},
		"a missing directory on the path is created": {
			map[string]string{"dir/link": "../real/none/file"},
			func(root string) error { return os.Mkdir(filepath.Join(root, "real/none"), 0o700) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := newLinkedDir(t, row.links)
			w, woken := newWatch(filepath.Join(root, "dir"))
			defer w.Close()
			for range 2 { // the second iteration renews the watch without a change
				if err := w.Renew(filepath.Join(root, "dir/link")); err != nil {
					t.Fatal(err)
				}
			}
			if err := row.change(root); err != nil {
				t.Fatal(err)
			}
			wait(t, woken)
		})
	}
}

// TestOldLinkTargetIsNotWatched checks that the directory of the previous target of a link is no
// longer watched, unless it is also watched under another name.
func TestOldLinkTargetIsNotWatched(t *testing.T) {
	root := newLinkedDir(t, map[string]string{"dir/link": "../real/file", "alias": "dir"})
	w := dirwatch.New(func() {}, filepath.Join(root, "alias"))
	defer w.Close()
	for _, to := range []string{"../real/file", "old", "../other/file"} {
		if err := retarget(filepath.Join(root, "dir/link"), to); err != nil {
			t.Fatal(err)
		}
		if err := w.Renew(filepath.Join(root, "alias/link")); err != nil {
			t.Fatal(err)
		}
	}
	want := []uint64{inode(t, root, "dir"), inode(t, root, "other")}
	slices.Sort(want)
	if diff := cmp.Diff(want, watchedInodes(t)); diff != "" {
		t.Errorf("watched inodes (-want +got):\n%s", diff)
	}
}

func inode(t *testing.T, parts ...string) uint64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// watchedInodes returns the inodes that this process watches (proc_pid_fdinfo(5)).
func watchedInodes(t *testing.T) []uint64 {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	var inodes []uint64
	for _, file := range files {
		data, _ := os.ReadFile(file) // the descriptor of the listing is already closed
		for line := range strings.Lines(string(data)) {
			var wd, ino uint64
			if n, _ := fmt.Sscanf(line, "inotify wd:%x ino:%x", &wd, &ino); n == 2 {
				inodes = append(inodes, ino)
			}
		}
	}
	slices.Sort(inodes)
	return inodes
}

// TestUnresolvableLinksAreIgnored covers a link to itself, and a link in a directory that is
// missing.
func TestUnresolvableLinksAreIgnored(t *testing.T) {
	root := newLinkedDir(t, map[string]string{"dir/link": "link"})
	w, _ := newWatch(filepath.Join(root, "dir"))
	defer w.Close()
	if err := w.Renew(filepath.Join(root, "dir/link"),
		filepath.Join(root, "none/link")); err != nil {
		t.Error(err)
	}
}

// newLinkedDir returns a directory with four subdirectories, each with a file, and with links. In
// the target of a link, ROOT/real is the absolute path of the subdirectory real.
func newLinkedDir(t *testing.T, links map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"dir/old", "real/file", "other/file", "hops/old"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range links {
		if filepath.Dir(to) == "ROOT/real" {
			to = filepath.Join(root, "real", filepath.Base(to))
		}
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// retarget changes the target of a link atomically: it creates the link under another name first.
func retarget(link, to string) error {
	if err := os.Symlink(to, link+".new"); err != nil {
		return err
	}
	return os.Rename(link+".new", link)
}
