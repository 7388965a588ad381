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
// that one pair has started stays captured, and the other pair can check and remove it.
func TestMixedVersions(t *testing.T) {
	netnstest.RequireRoot(t)
	commit, err := os.ReadFile(previousRelease)
	check(t, err)
	earlier := programsOf(t, strings.TrimSpace(string(commit)))
	name := map[string]string{sluiceName: "this", earlier: "before"}
	type pair struct{ agent, plugin string }
	for number, tc := range []struct{ from, to pair }{
		{pair{earlier, earlier}, pair{sluiceName, sluiceName}}, // upgrade
		{pair{sluiceName, sluiceName}, pair{earlier, earlier}}, // roll back
		{pair{earlier, sluiceName}, pair{sluiceName, earlier}}, // the plugin first, the agent first
		{pair{sluiceName, earlier}, pair{earlier, sluiceName}}, // and back
		{pair{earlier, earlier}, pair{sluiceName, earlier}},    // only the agent
		{pair{earlier, earlier}, pair{earlier, sluiceName}},    // only the plugin
	} {
		t.Run(fmt.Sprintf("agent %s, plugin %s to agent %s, plugin %s", name[tc.from.agent],
			name[tc.from.plugin], name[tc.to.agent], name[tc.to.plugin]), func(t *testing.T) {
			pod := meshPod(t)
			n := newNode(t, tc.from.agent, tc.from.plugin)
			query := n.answered()
			old, err := n.newSandbox(2*number, pod)
			check(t, err)
			if n.answered() == query {
				t.Error("the agent did not respond to the first pair's plugin")
			}
			isCaptured(t, old)

			n.stop()
			n.start(tc.to.agent, tc.to.plugin)
			isCaptured(t, old)
			check(t, n.plugins(old, n.checkList))
			if _, done, err := old.drift(); err != nil || !done {
				t.Errorf("the second agent did not repair a pod of the first plugin: %v", err)
			}
			query = n.answered()
			next, err := n.newSandbox(2*number+1, pod)
			check(t, err)
			if n.answered() == query {
				t.Error("the agent did not respond to the second pair's plugin")
			}
			isCaptured(t, next)
			check(t, errors.Join(n.remove(old), n.remove(next)))
			remaining, err := filepath.Glob(n.path("run/attachments/*"))
			if err != nil || len(remaining) > 0 {
				t.Errorf("records are left: %v, %v", remaining, err)
			}
		})
	}
}

// checkList runs CHECK.
func (n *node) checkList(
	ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
) error {
	return n.plugin.CheckNetworkList(ctx, list, rt)
}

// answered returns the metrics of the agent that count requests of the plugin.
func (n *node) answered() string {
	n.t.Helper()
	r, err := n.client.Get(n.metrics)
	check(n.t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	check(n.t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `sluice_serve_requests_total{result="success"}`) ||
			strings.HasPrefix(line, `sluice_serve_requests_total{result="fetched"}`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func isCaptured(t *testing.T, s *sandbox) {
	t.Helper()
	if _, err := s.captured(); err != nil {
		t.Error(err)
	}
}

// programsOf builds agent and plugin of a commit, unless they exist, and returns their directory.
// If the clone does not contain the commit, it skips the test, or fails it with SLUICE_REQUIRE or
// CI.
func programsOf(t *testing.T, commit string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	check(t, err)
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
	output(t, git("archive", "-o", archive, commit))
	output(t, exec.Command("tar", "-xf", archive, "-C", source))
	check(t, os.MkdirAll(dir, 0o755))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o",
		dir+"/", "./install/cmd/sluice-node", "./plugin/cmd/sluice-cni")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output(t, build)
	check(t, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644))
	return dir
}

func output(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
}
