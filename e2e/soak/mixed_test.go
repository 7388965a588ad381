package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// previousRelease is the file with the commit of the previous release.
const previousRelease = "../../.ci/release-before"

// TestMixedVersions combines agents and plugins of this version and of the previous release. A pod
// that one pair of agent and plugin has set up stays captured, and another pair can check, repair
// and remove the pod's rules.
func TestMixedVersions(t *testing.T) {
	netnstest.RequireRoot(t)
	commit, err := os.ReadFile(previousRelease)
	must(t, err)
	previous := programsOf(t, strings.TrimSpace(string(commit)))
	name := map[string]string{thisVersion: "current", previous: "previous"}
	type pair struct{ agent, plugin string }
	for number, tc := range []struct{ from, to pair }{
		{pair{previous, previous}, pair{thisVersion, thisVersion}}, // upgrade
		{pair{thisVersion, thisVersion}, pair{previous, previous}}, // roll back
		{pair{previous, thisVersion}, pair{thisVersion, previous}}, // upgrade the agent, roll back the plugin
		{pair{thisVersion, previous}, pair{previous, thisVersion}}, // roll back the agent, upgrade the plugin
		{pair{previous, previous}, pair{thisVersion, previous}},    // upgrade only the agent
		{pair{previous, previous}, pair{previous, thisVersion}},    // upgrade only the plugin
	} {
		t.Run(fmt.Sprintf("agent %s, plugin %s to agent %s, plugin %s", name[tc.from.agent],
			name[tc.from.plugin], name[tc.to.agent], name[tc.to.plugin]), func(t *testing.T) {
			pod := meshPod(t)
			n := newNode(t, tc.from.agent, tc.from.plugin)
			answered := n.answeredRequests()
			old, err := n.newSandbox(2*number, pod)
			must(t, err)
			if n.answeredRequests() == answered {
				t.Error("the agent did not respond to the first pair's plugin")
			}
			checkCaptured(t, old)

			n.stop()
			n.start(tc.to.agent, tc.to.plugin)
			checkCaptured(t, old)
			must(t, n.runPlugins(old, n.checkList))
			if _, done, err := old.measureRepair(); err != nil || !done {
				t.Errorf("the second agent did not repair a pod of the first plugin (error %v)", err)
			}
			answered = n.answeredRequests()
			next, err := n.newSandbox(2*number+1, pod)
			must(t, err)
			if n.answeredRequests() == answered {
				t.Error("the agent did not respond to the second pair's plugin")
			}
			checkCaptured(t, next)
			must(t, errors.Join(n.remove(old), n.remove(next)))
			remaining, err := filepath.Glob(n.path("run/attachments/*"))
			if err != nil || len(remaining) > 0 {
				t.Errorf("records after DEL: %v, error %v, want none", remaining, err)
			}
		})
	}
}

// checkList runs CHECK of all plugins.
func (n *node) checkList(
	ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
) error {
	return n.plugin.CheckNetworkList(ctx, list, rt)
}

// answeredRequests returns the agent's metrics that count the answered requests of the plugin.
func (n *node) answeredRequests() string {
	n.t.Helper()
	r, err := n.client.Get(n.metrics)
	must(n.t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	must(n.t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `sluice_serve_requests_total{result="success"}`) ||
			strings.HasPrefix(line, `sluice_serve_requests_total{result="fetched"}`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// checkCaptured fails the test if a connection of the sandbox is not captured.
func checkCaptured(t *testing.T, s *sandbox) {
	t.Helper()
	if _, err := s.connectCaptured(); err != nil {
		t.Error(err)
	}
}

// programsOf builds the agent and the plugin of a commit, unless they exist, and returns their
// directory. If the clone does not contain the commit, programsOf skips the test, or fails it if
// SLUICE_REQUIRE or CI is set.
func programsOf(t *testing.T, commit string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	dir := filepath.Join(root, "bin", "before", commit)
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		return dir
	}
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-C", root, "-c", "safe.directory=*"}, args...)...)
	}
	if err := git("cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		text := "the clone does not contain the commit " + commit +
			" of the previous release: run git fetch --unshallow"
		if netnstest.MustNotSkip() {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	source := t.TempDir()
	archive := filepath.Join(source, "source.tar")
	mustRun(t, git("archive", "-o", archive, commit))
	mustRun(t, exec.Command("tar", "-xf", archive, "-C", source))
	must(t, os.MkdirAll(dir, 0o755))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o",
		dir+"/", "./install/cmd/sluice-node", "./plugin/cmd/sluice-cni")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	mustRun(t, build)
	must(t, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644))
	return dir
}

// mustRun runs a command, and fails the test immediately if the command fails.
func mustRun(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
}
