package node_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/node"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(victimEnv); job != "" {
		victim(job)
		return
	}
	goleak.VerifyTestMain(m)
}

// A testNode is a node's directories in a temporary one, with the files of the agent's image.
type testNode struct {
	t        testing.TB
	dir      string
	settings node.Settings
}

const (
	elementV1 = `{"type":"sluice-cni","plugin_log_level":"info"}`
	elementV2 = `{"type":"sluice-cni","plugin_log_level":"debug"}`
)

// Contents of executables. They are never run.
var (
	pluginV1 = strings.Repeat("plugin, version 1\n", 2000)
	pluginV2 = strings.Repeat("plugin, version 2\n", 2500)
	noop     = strings.Repeat("does nothing\n", 100)
)

func newTestNode(t testing.TB) *testNode {
	t.Helper()
	return testNodeIn(t, t.TempDir())
}

// testNodeIn returns the testNode of a directory, and creates its files unless they exist.
func testNodeIn(t testing.TB, dir string) *testNode {
	b := &testNode{t: t, dir: dir}
	b.settings = node.Settings{
		CNIBinDir: b.path("bin"), CNIConfDir: b.path("conf"), StateDir: b.path("state"),
		ResultDirs: []string{b.path("results")},
		Chained:    true, Type: "sluice-cni", Element: json.RawMessage(elementV1),
		Binaries:       map[string]string{"sluice-cni": b.path("image", "v1")},
		Noop:           b.path("image", "noop"),
		AgentNamespace: "istio-system", AgentDaemonSet: "sluice-node",
	}
	if _, err := os.Stat(b.path("image")); errors.Is(err, fs.ErrNotExist) {
		for name, content := range map[string]string{
			"image/v1": pluginV1, "image/v2": pluginV2, "image/noop": noop,
			"bin/bridge": "a foreign plugin",
		} {
			b.put(name, content)
		}
		for _, d := range []string{"conf", "results"} {
			b.must(os.MkdirAll(b.path(d), 0o755))
		}
	}
	return b
}

func (b *testNode) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

func (b *testNode) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// put replaces a file atomically, like other programs.
func (b *testNode) put(name, content string) {
	b.t.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.must(os.WriteFile(b.path(name)+".theirs", []byte(content), 0o644))
	b.must(os.Rename(b.path(name)+".theirs", b.path(name)))
}

func (b *testNode) putAll(files map[string]string) {
	b.t.Helper()
	for name, content := range files {
		b.put(name, content)
	}
}

func (b *testNode) executable(name, content string) {
	b.t.Helper()
	b.put("bin/"+name, content)
	b.must(os.Chmod(b.path("bin", name), 0o755))
}

func (b *testNode) remove(name string) {
	b.t.Helper()
	b.must(os.Remove(b.path(name)))
}

func (b *testNode) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(b.path(name))
	b.must(err)
	return string(data)
}

// upgraded returns the settings of the next version.
func (b *testNode) upgraded() node.Settings {
	s := b.settings
	s.Element = json.RawMessage(elementV2)
	s.Binaries = map[string]string{"sluice-cni": b.path("image", "v2")}
	return s
}

func (b *testNode) node() *node.Node { return b.nodeOf(b.settings, node.Options{}) }

func (b *testNode) nodeOf(s node.Settings, o node.Options) *node.Node {
	b.t.Helper()
	n, err := node.New(s, o)
	b.must(err)
	return n
}

// content returns all files below a directory with their modes and contents.
func (b *testNode) content(dir string) map[string]string {
	b.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(b.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, b.dir+"/")] = fmt.Sprint(info.Mode(), " ", string(data))
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		b.must(err)
	}
	return files
}

// everything returns the files that an uninstallation must restore.
func (b *testNode) everything() map[string]string {
	all := b.content("conf")
	maps.Copy(all, b.content("bin"))
	maps.Copy(all, b.content("state"))
	return all
}

// chains returns the plugin types in each configuration file.
func (b *testNode) chains() map[string]string {
	b.t.Helper()
	entries, err := os.ReadDir(b.path("conf"))
	b.must(err)
	got := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(b.path("conf", e.Name()))
		b.must(err)
		if list, err := chain.Parse(data); err == nil {
			got[e.Name()] = strings.Join(list.Types(), " ")
		} else if plugin := chain.TypeOf(data); plugin != "" {
			got[e.Name()] = "plain " + plugin
		} else {
			got[e.Name()] = "not valid"
		}
	}
	return got
}

func (b *testNode) wantChains(want map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.chains()); diff != "" {
		b.t.Errorf("chains (-want +got):\n%s", diff)
	}
}

// reconcile makes one reconciliation of a new node, like a restarted agent.
func (b *testNode) reconcile() node.Status {
	b.t.Helper()
	return b.node().Reconcile(b.t.Context())
}

func (b *testNode) installed(s node.Status) {
	b.t.Helper()
	if !s.Installed() {
		b.t.Fatalf("not installed: %v", s.Problems)
	}
}

func (b *testNode) uninstall() node.Report {
	b.t.Helper()
	report, err := b.node().Uninstall(b.t.Context(), 0)
	b.must(err)
	return report
}

// restored fails the test unless all files are as before.
func (b *testNode) restored(before map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(before, b.everything()); diff != "" {
		b.t.Errorf("after uninstallation the node differs (-before +after):\n%s", diff)
	}
}

func reasons(s node.Status) []node.Reason {
	var got []node.Reason
	for _, p := range s.Problems {
		if !slices.Contains(got, p.Reason) {
			got = append(got, p.Reason)
		}
	}
	return got
}

// cache writes the result that a runtime caches for a sandbox with these plugins.
func (b *testNode) cache(sandbox string, plugins ...string) {
	b.t.Helper()
	b.cacheArgs(sandbox, podArgs("shop", sandbox), plugins...)
}

// cacheArgs is like cache with these arguments of the runtime.
func (b *testNode) cacheArgs(sandbox, args string, plugins ...string) {
	b.t.Helper()
	config := base64.StdEncoding.EncodeToString([]byte(list(plugins...)))
	b.put("results/net-"+sandbox+"-eth0",
		`{"kind":"cniCacheV1","containerId":"`+sandbox+`","config":"`+config+
			`","ifName":"eth0","cniArgs":`+args+`}`)
}

// podArgs returns the arguments that a runtime passes for a pod.
func podArgs(namespace, pod string) string {
	return fmt.Sprintf(`[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE",%q],["K8S_POD_NAME",%q],["K8S_POD_UID","7d1e"]]`, namespace, pod)
}

// list returns a configuration list with plugins of these types.
func list(plugins ...string) string {
	var elements []string
	for _, p := range plugins {
		elements = append(elements, fmt.Sprintf("    {\n      \"type\": %q\n    }", p))
	}
	return "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"net\",\n  \"plugins\": [\n" +
		strings.Join(elements, ",\n") + "\n  ]\n}\n"
}

const plainBridge = "{\n  \"cniVersion\": \"0.4.0\",\n  \"name\": \"lab\",\n  \"type\": \"bridge\"\n}\n"

// running runs a node until the test ends, and returns its statuses.
func (b *testNode) running(n *node.Node) <-chan node.Status {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	statuses, done := make(chan node.Status), make(chan error, 1)
	go func() {
		done <- n.Run(ctx, func(s node.Status) {
			select {
			case statuses <- s:
			case <-ctx.Done():
			}
		})
	}()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.t.Errorf("run: %v", err)
		}
	})
	return statuses
}

// conditionTimeout limits the wait for a condition. Conditions take some milliseconds on an idle
// machine.
const conditionTimeout = 30 * time.Second

// await reads statuses until ok returns true for one, and returns it.
func await(
	t testing.TB, statuses <-chan node.Status, description string, ok func(node.Status) bool,
) node.Status {
	t.Helper()
	timer := time.NewTimer(conditionTimeout)
	defer timer.Stop()
	var last node.Status
	for {
		select {
		case last = <-statuses:
			if ok(last) {
				return last
			}
		case <-timer.C:
			t.Fatalf("timeout: %s; last status: %+v", description, last)
		}
	}
}
