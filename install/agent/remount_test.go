package agent_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestAgentWithAStaleMountExits checks that the agent reports that the runtime reads another
// directory than the mounted one, and exits. The next agent, which gets new mounts, installs the
// plugin in the directory that the runtime reads. The parent of this process represents the
// runtime: it has other mounts.
func TestAgentWithAStaleMountExits(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	dir := b.path("node/net.d")
	b.writeFile("node/net.d/10-net.conflist", primary)
	for variable, value := range map[string]string{
		"SLUICE_MOUNTED_PROC_DIR": "/proc", "SLUICE_HOST_NET_DIR": dir,
		"SLUICE_HOST_BIN_DIR": b.path("bin"),
	} {
		b.env[variable] = value
	}
	mount := func() {
		if err := unix.Mount(dir, b.path("conf"), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		if err := unix.Unmount(b.path("conf"), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	defer unmount()
	r := b.run(nil)
	r.waitReady()
	if text := r.reasons("configuration"); strings.Contains(text, "cannot determine whether the runtime reads this directory") {
		t.Errorf("the node's directory was not found: %s", text)
	}
	if _, text := r.get("MONITORING_PORT", "/metrics"); !strings.Contains(text,
		`sluice_node_directory{directory="configuration",state="same"} 1`) {
		t.Error("the metric does not report that the directory is the same")
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	b.writeFile("node/net.d/10-net.conflist", primary)
	r.until("the node is not ready, and a bypass is reported", func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return !r.readiness().Ready && strings.Contains(text, "\nsluice_chain_bypassed 1\n")
	})
	select {
	case err := <-r.done:
		if err == nil || !strings.Contains(err.Error(), "new mounts") {
			t.Errorf("the agent exited with %v, want an error about new mounts", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the agent continues with a mount that the runtime does not read")
	}
	if !slices.ContainsFunc(b.Events(), func(e apiservertest.Event) bool {
		return e.Reason == "DirectoryReplaced"
	}) {
		t.Errorf("the events of the node do not contain the reason: %v", b.Events())
	}
	if !slices.Contains(b.chain(), "sluice-cni") {
		t.Error("the plugin was removed from the node")
	}
	unmount()
	mount()
	r = b.run(nil)
	r.waitReady()
	if !slices.Contains(b.chain(), "sluice-cni") {
		t.Error("the plugin is not in the chain that the runtime reads")
	}
	r.end()
}
