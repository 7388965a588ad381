package machine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHierarchies(t *testing.T) {
	for _, c := range []struct {
		reason, mountinfo, cgroup string
		want                      []hierarchy
	}{
		{
			"cgroup v2 only",
			"35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot",
			"0::/user.slice/session-1.scope",
			[]hierarchy{{
				Mount: "/sys/fs/cgroup", Type: "cgroup2",
				processCgroup: "/sys/fs/cgroup/user.slice/session-1.scope",
			}},
		},
		{
			"cgroup v1 with two controllers in one hierarchy, a named hierarchy, and cgroup v2",
			"30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n" +
				"31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,release_agent=/lib/x,name=systemd\n" +
				"32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"12:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/c\n",
			[]hierarchy{
				{
					Mount: "/sys/fs/cgroup/cpu,cpuacct", Type: "cgroup", Options: "cpu,cpuacct",
					processCgroup: "/sys/fs/cgroup/cpu,cpuacct/a/b",
				},
				{
					Mount: "/sys/fs/cgroup/systemd", Type: "cgroup", Options: "name=systemd",
					processCgroup: "/sys/fs/cgroup/systemd",
				},
				{Mount: "/sys/fs/cgroup/unified", Type: "cgroup2", processCgroup: "/sys/fs/cgroup/unified/c"},
			},
		},
		{
			"a subtree of the hierarchy, as in a container",
			"35 24 0:30 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw", "0::/docker/1/sub",
			[]hierarchy{{Mount: "/sys/fs/cgroup", Type: "cgroup2", processCgroup: "/sys/fs/cgroup/sub"}},
		},
		{
			"a mounted subtree that does not contain this process",
			"35 24 0:30 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw", "0::/elsewhere", nil,
		},
		{"other file systems", "35 24 0:30 / /proc rw - proc proc rw\nshort\n", "0::/", nil},
	} {
		got, err := parseHierarchies(strings.NewReader(c.mountinfo), strings.NewReader(c.cgroup))
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
			t.Errorf("%s: hierarchies (-want +got)\n%s", c.reason, diff)
		}
	}
}

func FuzzHierarchies(f *testing.F) {
	f.Add("35 24 0:30 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw", "0::/docker/1/sub")
	f.Add("30 24 0:26 / /sys/fs/cgroup/cpu rw shared:11 - cgroup cgroup rw,cpu", "12:cpu:/a/b")
	f.Fuzz(func(t *testing.T, mountinfo, cgroup string) {
		found, _ := parseHierarchies(strings.NewReader(mountinfo), strings.NewReader(cgroup))
		for _, h := range found {
			if below, err := filepath.Rel(h.Mount, h.processCgroup); err != nil ||
				strings.HasPrefix(below, "../") {
				t.Errorf("cgroup %q of this process is not below the mount %q", h.processCgroup,
					h.Mount)
			}
		}
	})
}
