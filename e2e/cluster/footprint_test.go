package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The network namespaces that runtimes make are named like this. Those of others come and go while
// a test runs.
const runtimeNetns = "/run/netns/cni-"

// withoutForeignNetns leaves out the mounts of the latter.
func withoutForeignNetns(mounts string) string {
	var left strings.Builder
	for line := range strings.Lines(mounts) {
		if !strings.HasPrefix(line, "nsfs /run/netns/") ||
			strings.HasPrefix(line, "nsfs "+runtimeNetns) {
			left.WriteString(line)
		}
	}
	return left.String()
}

// footprint is what this machine has that a cluster could have left or changed.
func footprint(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{
		"/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*", "/sys/class/net/*",
		runtimeNetns + "*",
		"/run/containerd*", "/run/runc*", "/run/xtables.lock", "/var/lib/*", "/var/log/*", "/etc/*",
		"/opt/*", "/opt/cni/*", "/etc/cni/*",
		"/usr/libexec/*", "/root/.kube*", "/root/.cache/*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found[pattern] = strings.Join(paths, " ")
	}
	for _, pattern := range []string{
		"/proc/self/mounts", "/proc/sys/kernel/hostname", "/proc/sys/kernel/panic*",
		"/proc/sys/kernel/keys/*", "/proc/sys/vm/overcommit_*",
		"/proc/sys/vm/panic_on_oom", "/proc/sys/fs/file-max", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv4/conf/all/*",
		"/proc/sys/net/ipv6/conf/all/*", "/proc/sys/net/bridge/*",
		"/proc/sys/net/netfilter/nf_conntrack_max", "/proc/net/route",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			// A value that cannot be read, as a secret, is the same before and after.
			content, _ := os.ReadFile(file)
			found[file] = withoutForeignNetns(string(content))
		}
	}
	rules, err := exec.Command("nft", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, rules)
	}
	found["ruleset"] = string(rules)
	return found
}

// same fails the test when the footprint is another than before.
func same(t *testing.T, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, footprint(t)); diff != "" {
		t.Errorf("this machine changed:\n%s", diff)
	}
}
