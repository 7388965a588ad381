package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runtimeNetns is the prefix of the paths of network namespaces that container runtimes create.
const runtimeNetns = "/run/netns/cni-"

// withoutForeignNetns removes the mounts of network namespaces that no container runtime created.
// Other programs may change these mounts during a test.
func withoutForeignNetns(mounts string) string {
	var remaining strings.Builder
	for line := range strings.Lines(mounts) {
		if !strings.HasPrefix(line, "nsfs /run/netns/") ||
			strings.HasPrefix(line, "nsfs "+runtimeNetns) {
			remaining.WriteString(line)
		}
	}
	return remaining.String()
}

// footprint returns the state of this machine that a cluster could change.
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
			// A value that cannot be read, such as a secret, counts as unchanged.
			content, _ := os.ReadFile(file)
			found[file] = withoutForeignNetns(string(content))
		}
	}
	rules, err := exec.Command("nft", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, rules)
	}
	found["ruleset"] = string(rules)
	return found
}

// mustEqualFootprint fails the test unless the footprint is the same as before.
func mustEqualFootprint(t *testing.T, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, footprint(t)); diff != "" {
		t.Errorf("state of this machine (-before +after)\n%s", diff)
	}
}
