package machine_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// namespaces returns the namespaces of a process that differ from this process's. It keeps them
// open until the test ends, so that the kernel does not reuse their inode numbers.
func namespaces(t *testing.T, pid int) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		path := filepath.Join("/proc", strconv.Itoa(pid), "ns", kind)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		theirs, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		if own, err := os.Readlink("/proc/self/ns/" + kind); err != nil || own == theirs {
			t.Fatalf("process %d has no %s namespace of its own: %v", pid, kind, err)
		}
		found[theirs] = true
	}
	return found
}

// processesIn returns the files in /proc that link processes to any of the namespaces.
func processesIn(t *testing.T, namespaces map[string]bool) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if theirs, err := os.Readlink(link); err == nil && namespaces[theirs] {
			found = append(found, link)
		}
	}
	return found
}

// parentOf returns the parent of a process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// footprint returns the state of the host that a machine could change.
func footprint(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"/sys/class/net/*", "/run/netns/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found[pattern] = strings.Join(paths, " ")
	}
	for _, file := range []string{
		"/proc/self/mounts", "/proc/self/cgroup", "/proc/sys/kernel/hostname",
		"/proc/sys/kernel/random/boot_id",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic",
		"/proc/sys/kernel/panic_on_oops",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding",
	} {
		content, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		found[file] = string(content)
	}
	return found
}

// mustEqualFootprint fails the test unless the footprint is the same as before.
func mustEqualFootprint(t *testing.T, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, footprint(t)); diff != "" {
		t.Errorf("state of the host (-before +after)\n%s", diff)
	}
}
