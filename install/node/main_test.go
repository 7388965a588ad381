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
	if job := os.Getenv(jobEnv); job != "" {
		runKilledJob(job)
		return
	}
	goleak.VerifyTestMain(m)
}

// A testNode consists of a node's directories and the files of the agent's image, in a temporary
// directory.
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

// testNodeIn returns the testNode of a directory, and creates the testNode's files unless they
// exist.
func testNodeIn(t testing.TB, dir string) *testNode {
	tn := &testNode{t: t, dir: dir}
	tn.settings = node.Settings{
		CNIBinDir: tn.path("bin"), CNIConfDir: tn.path("conf"), StateDir: tn.path("state"),
		NodeCNIConfDir: "/etc/cni/net.d",
		ResultDirs:     []string{tn.path("results")},
		Chained:        true, Type: "sluice-cni", Element: json.RawMessage(elementV1),
		Binaries:       map[string]string{"sluice-cni": tn.path("image", "v1")},
		Noop:           tn.path("image", "noop"),
		AgentNamespace: "istio-system", AgentDaemonSet: "sluice-node",
	}
	if _, err := os.Stat(tn.path("image")); errors.Is(err, fs.ErrNotExist) {
		for name, content := range map[string]string{
			"image/v1": pluginV1, "image/v2": pluginV2, "image/noop": noop,
			"bin/bridge": "a foreign plugin",
		} {
			tn.put(name, content)
		}
		for _, d := range []string{"conf", "results"} {
			tn.must(os.MkdirAll(tn.path(d), 0o755))
		}
	}
	return tn
}

func (tn *testNode) path(parts ...string) string {
	return filepath.Join(append([]string{tn.dir}, parts...)...)
}

func (tn *testNode) must(err error) {
	tn.t.Helper()
	if err != nil {
		tn.t.Fatal(err)
	}
}

// put replaces a file atomically, like other programs.
func (tn *testNode) put(name, content string) {
	tn.t.Helper()
	tn.must(os.MkdirAll(filepath.Dir(tn.path(name)), 0o755))
	tn.must(os.WriteFile(tn.path(name)+".new", []byte(content), 0o644))
	tn.must(os.Rename(tn.path(name)+".new", tn.path(name)))
}

func (tn *testNode) putAll(files map[string]string) {
	tn.t.Helper()
	for name, content := range files {
		tn.put(name, content)
	}
}

func (tn *testNode) putExecutable(name, content string) {
	tn.t.Helper()
	tn.put("bin/"+name, content)
	tn.must(os.Chmod(tn.path("bin", name), 0o755))
}

func (tn *testNode) remove(name string) {
	tn.t.Helper()
	tn.must(os.Remove(tn.path(name)))
}

func (tn *testNode) read(name string) string {
	tn.t.Helper()
	data, err := os.ReadFile(tn.path(name))
	tn.must(err)
	return string(data)
}

// upgraded returns the settings of the next version.
func (tn *testNode) upgraded() node.Settings {
	s := tn.settings
	s.Element = json.RawMessage(elementV2)
	s.Binaries = map[string]string{"sluice-cni": tn.path("image", "v2")}
	return s
}

func (tn *testNode) node() *node.Node { return tn.nodeOf(tn.settings) }

func (tn *testNode) nodeOf(s node.Settings) *node.Node {
	tn.t.Helper()
	n, err := node.New(s)
	tn.must(err)
	return n
}

// nodeAt is like nodeOf, with a clock.
func (tn *testNode) nodeAt(s node.Settings, now func() time.Time) *node.Node {
	tn.t.Helper()
	n := tn.nodeOf(s)
	n.SetClock(now)
	return n
}

// content returns all files below a directory with their modes and contents.
func (tn *testNode) content(dir string) map[string]string {
	tn.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(tn.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, tn.dir+"/")] = fmt.Sprint(info.Mode(), " ", string(data))
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		tn.must(err)
	}
	return files
}

// filesToRestore returns the files that an uninstallation must restore.
func (tn *testNode) filesToRestore() map[string]string {
	all := tn.content("conf")
	maps.Copy(all, tn.content("bin"))
	maps.Copy(all, tn.content("state"))
	return all
}

// chains returns the plugin types in each configuration file.
func (tn *testNode) chains() map[string]string {
	tn.t.Helper()
	entries, err := os.ReadDir(tn.path("conf"))
	tn.must(err)
	got := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(tn.path("conf", e.Name()))
		tn.must(err)
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

func (tn *testNode) wantChains(want map[string]string) {
	tn.t.Helper()
	if diff := cmp.Diff(want, tn.chains()); diff != "" {
		tn.t.Errorf("chains (-want +got):\n%s", diff)
	}
}

// reconcile reconciles with a new node, like a restarted agent.
func (tn *testNode) reconcile() node.Status {
	tn.t.Helper()
	return tn.node().Reconcile(tn.t.Context())
}

func (tn *testNode) mustBeInstalled(s node.Status) {
	tn.t.Helper()
	if !s.Installed() {
		tn.t.Fatalf("the plugin is not installed; problems %v, want none that is blocking", s.Problems)
	}
}

func (tn *testNode) uninstall() node.Report {
	tn.t.Helper()
	report, err := tn.node().Uninstall(tn.t.Context(), 0)
	tn.must(err)
	return report
}

// wantRestored fails the test unless filesToRestore returns the same files as before.
func (tn *testNode) wantRestored(before map[string]string) {
	tn.t.Helper()
	if diff := cmp.Diff(before, tn.filesToRestore()); diff != "" {
		tn.t.Errorf("after uninstallation the node differs (-before +after):\n%s", diff)
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

// cacheResult writes the result that a runtime caches for a sandbox with these plugins.
func (tn *testNode) cacheResult(sandbox string, plugins ...string) {
	tn.t.Helper()
	tn.cacheResultWithArgs(sandbox, podArgs("shop", sandbox), plugins...)
}

// cacheResultWithArgs is like cacheResult, with the given CNI arguments (a JSON value).
func (tn *testNode) cacheResultWithArgs(sandbox, args string, plugins ...string) {
	tn.t.Helper()
	config := base64.StdEncoding.EncodeToString([]byte(list(plugins...)))
	tn.put("results/net-"+sandbox+"-eth0",
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

// networkList returns a list with Calico's plugin and the name.
func networkList(name string) string { return strings.Replace(list("calico"), "net", name, 1) }

// plainBridge is a single-plugin configuration. These tests call such configurations plain.
const plainBridge = "{\n  \"cniVersion\": \"0.4.0\",\n  \"name\": \"lab\",\n  \"type\": \"bridge\"\n}\n"

// runNode runs a node until the test ends, and returns its statuses.
func (tn *testNode) runNode(n *node.Node) <-chan node.Status {
	tn.t.Helper()
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
	tn.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			tn.t.Errorf("Run: error %v, want Canceled", err)
		}
	})
	return statuses
}

// conditionTimeout limits the wait for a condition. On an idle machine, a condition becomes true
// within some milliseconds.
const conditionTimeout = 30 * time.Second

// await reads statuses until ok returns true for a status, and returns this status.
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
			t.Fatalf("timeout before %s; last status: %+v", description, last)
		}
	}
}
