package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// hierarchies returns the mount points of cgroups on this machine, by version.
func hierarchies(t testing.TB) map[string]string {
	t.Helper()
	netnstest.RequireRoot(t)
	mounts := map[string]string{}
	for _, file := range []string{
		"/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/unified/cgroup.controllers",
		"/sys/fs/cgroup/pids/tasks",
	} {
		version := "version 2"
		if filepath.Base(file) == "tasks" {
			version = "version 1"
		}
		if _, err := os.Stat(file); err == nil {
			mounts[version] = filepath.Dir(file)
		}
	}
	if len(mounts) == 0 {
		t.Fatal("no cgroups below /sys/fs/cgroup")
	}
	return mounts
}

// anyHierarchy returns one of the mount points of cgroups.
func anyHierarchy(t testing.TB) string {
	t.Helper()
	for _, dir := range hierarchies(t) {
		return dir
	}
	return ""
}

// cgroup creates a cgroup below a cgroup with this process's ID in its name, and returns its
// directory.
func cgroup(t testing.TB, hierarchy, path string) string {
	t.Helper()
	top := fmt.Sprintf("sluice-%d", os.Getpid())
	dir := hierarchy
	for level := range strings.SplitSeq(filepath.Join(top, path), "/") {
		dir = filepath.Join(dir, level)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		made := dir
		t.Cleanup(func() { _ = os.Remove(made) }) // fails while another test uses the cgroup
	}
	return dir
}

// start starts a process in a namespace and in the cgroup with directory dir. The process ends with
// the test, or when stop is called.
func start(t testing.TB, ns *netns.NS, dir string) (pid int, stop func()) {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, "cat"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"),
		[]byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, stop
}

// start calls the function start, and adds the process to the node's /proc.
func (n *node) start(t testing.TB, ns *netns.NS, dir string) (pid int, stop func()) {
	t.Helper()
	pid, stop = start(t, ns, dir)
	n.process(t, pid, pid)
	return pid, stop
}
