package netnstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// NewCgroup creates a cgroup of version 2 with a path below the root, and removes it when the test
// ends. It returns its directory and its match.
func NewCgroup(t testing.TB, path string) (dir string, m rules.MatchCgroup) {
	t.Helper()
	RequireRoot(t)
	dir = filepath.Join(cgroupRoot(t), path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		skipOrFail(t, "cannot create a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil {
		t.Fatal(err)
	}
	m = rules.CgroupOf(path)
	m.ID = s.Ino
	return dir, m
}

// cgroupRoot returns the first mount point of the root of the hierarchy. Later ones may be mounts of
// other tests.
func cgroupRoot(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && fields[3] == "/" {
			return fields[4]
		}
	}
	skipOrFail(t, "the root of the hierarchy of cgroups of version 2 is not mounted")
	return ""
}
