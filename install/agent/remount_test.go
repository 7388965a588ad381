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
	t.Parallel() // mostly waits
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	dir := tn.path("node/net.d")
	tn.writeFile("node/net.d/10-net.conflist", primary)
	for variable, value := range map[string]string{
		"SLUICE_MOUNTED_PROC_DIR": "/proc", "SLUICE_HOST_NET_DIR": dir,
		"SLUICE_HOST_BIN_DIR": tn.path("bin"),
	} {
		tn.env[variable] = value
	}
	mount := func() {
		if err := unix.Mount(dir, tn.path("conf"), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		if err := unix.Unmount(tn.path("conf"), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	defer unmount()
	r := tn.run(nil)
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
	tn.writeFile("node/net.d/10-net.conflist", primary)
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
	if !slices.ContainsFunc(tn.Events(), func(e apiservertest.Event) bool {
		return e.Reason == "DirectoryReplaced"
	}) {
		t.Errorf("the events of the node do not contain the reason: %v", tn.Events())
	}
	if !slices.Contains(tn.chain(), "sluice-cni") {
		t.Error("the plugin was removed from the node")
	}
	unmount()
	mount()
	r = tn.run(nil)
	r.waitReady()
	if !slices.Contains(tn.chain(), "sluice-cni") {
		t.Error("the plugin is not in the chain that the runtime reads")
	}
	r.end()
}
