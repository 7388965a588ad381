package suite_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/image"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// TestNode runs a subset of TestSluice on a virtual machine: Debian with its own kernel, systemd,
// container runtime and CNI plugins.
func TestNode(t *testing.T) {
	if !onVM() {
		t.Skipf("%s is not vm: run \"make e2e-node\"", providerVariable)
	}
	newTestCluster(t).runGroups(t, virtualMachine)
}

var virtualMachine = testGroup{name: "node", tests: []groupTest{
	{"systemd runs the distribution's container runtime, and AppArmor confines pods", checkSystem},
	{
		"the DaemonSet is ready, Sluice's plugin is the last one of each chain, and the others are byte-identical",
		checkChain,
	},
	{"one pod of the mesh reaches another through both proxies", checkMesh},
	{"rules that are flushed in a running pod are restored", checkFlush},
	{
		"while the node's clock is set forward and back, pods start captured and the agent stays ready",
		checkClock,
	},
	{
		"pods that start while the agent is upgraded to another image are captured",
		checkNewImage,
	},
	{"after a reboot of the node, all pods start captured", checkReboot},
	{
		"after helm uninstall, the nodes' files are as before, and running pods stay redirected",
		checkUninstall,
	},
	{"AppArmor has denied nothing since the boot, except SIGURG of Go's scheduler under CRI-O", checkNoDenials},
}}

// runtimeOnVM returns the service of the node's container runtime.
func runtimeOnVM() string {
	if os.Getenv("RUNTIME") == cluster.CRIO {
		return cluster.CRIO
	}
	return cluster.Containerd
}

func checkSystem(t *testing.T, tc *testCluster) {
	pod := tc.run(t, meshPod(tc.newNamespace(t), "a"))[0]
	pid, err := tc.containerPID(t.Context(), pod, mesh.AppContainer)
	if err != nil {
		t.Fatal(err)
	}
	profile := map[string]string{
		cluster.Containerd: "cri-containerd.apparmor.d",
		cluster.CRIO:       "crio-default",
	}[runtimeOnVM()]
	for _, row := range []struct {
		want string
		argv []string
	}{
		{"systemd", []string{"cat", "/proc/1/comm"}},
		{"cgroup2fs", []string{"stat", "--file-system", "--format=%T", "/sys/fs/cgroup"}},
		{"enforce", []string{"cat", "/sys/module/apparmor/parameters/mode"}},
		{profile, []string{"cat", "/proc/" + pid + "/attr/current"}},
		{profile, []string{
			"grep", "--line-regexp", "--fixed-strings", profile + " (enforce)",
			"/sys/kernel/security/apparmor/profiles",
		}},
		{"0::/kubepods.slice/", []string{"cat", "/proc/" + pid + "/cgroup"}},
		{"active", []string{"systemctl", "is-active", runtimeOnVM()}},
	} {
		got := strings.TrimSpace(mustPrint(t, tc.node(), row.argv...))
		t.Logf("%s: %s", strings.Join(row.argv, " "), got)
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("%s prints %q, want prefix %q", strings.Join(row.argv, " "), got, row.want)
		}
	}
}

func checkNoDenials(t *testing.T, tc *testCluster) {
	// Go's scheduler interrupts threads by SIGURG. CRI-O's profile permits signals between its
	// processes. Debian's profile of crun is stacked on CRI-O's profile, and denies them.
	const list = `journalctl --quiet --no-pager --boot --dmesg --grep='apparmor="DENIED"' |
		grep -v signal=urg || true`
	if denials := mustPrint(t, tc.node(), "sh", "-c", list); denials != "" {
		t.Errorf("AppArmor has denied:\n%s", denials)
	}
}

// checkNewImage upgrades the agent to an image with another tag while pods start and stop.
func checkNewImage(t *testing.T, tc *testCluster) {
	ref := tc.image + "-next"
	archive := filepath.Join(t.TempDir(), "next.tar")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spec := image.Sluice(ref)
	spec.Platforms = []image.Platform{{
		Architecture: runtime.GOARCH, Root: os.DirFS(filepath.Join(bin, "image", runtime.GOARCH)),
	}}
	if _, err := image.Write(file, spec); err != nil {
		t.Fatal(err)
	}
	if err := tc.LoadImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	ns := tc.newNamespace(t)
	b := tc.run(t, meshPod(ns, "b"))[0]
	begin := time.Now()
	c := tc.startChurn(t, ns, b, 2)
	tc.image = ref
	if _, err := tc.helm(t.Context(), append([]string{"upgrade"},
		tc.chartArgs()...)...); err != nil {
		t.Error(err)
	}
	t.Logf("agent upgraded after %s", time.Since(begin).Round(time.Second))
	c.end(t)
	pods, _ := c.count()
	t.Logf("%d pods started and ended in %s", pods, time.Since(begin).Round(time.Second))
	eventually(t, readyTimeout, "the agent is ready", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, agent)
	})
	if got := tc.agentPod(t).Spec.Containers[0].Image; got != ref {
		t.Errorf("agent image %s, want %s", got, ref)
	}
}
