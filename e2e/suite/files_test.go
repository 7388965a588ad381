package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// pluginDir returns the directory of a node's CNI plugins.
func pluginDir() string {
	if onVM() {
		return cluster.VMPluginDir
	}
	return "/opt/cni/bin"
}

// files maps files of nodes to their mode and digest. The keys are results of fileOf.
type files map[string]string

// fileOf returns the key of a node's file.
func fileOf(n cluster.Node, name string) string { return n.Name() + ":" + name }

// nodeFiles returns the files in the CNI directories of all nodes.
func (tc *testCluster) nodeFiles(t *testing.T) files {
	t.Helper()
	const list = `find "$@" ! -type d -printf '%M  %p\n'; find "$@" -type f -exec sha256sum {} +`
	found := files{}
	for _, n := range tc.Nodes() {
		out := mustPrint(t, n, "sh", "-c", list, "sh", "/etc/cni", pluginDir())
		for line := range strings.Lines(out) {
			description, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			found[fileOf(n, name)] += description + " "
		}
	}
	return found
}

// mustPrint runs a command on a node, and returns its output.
func mustPrint(t *testing.T, n cluster.Node, argv ...string) string {
	t.Helper()
	var stderr strings.Builder
	c := n.Command(t.Context(), argv...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return string(out)
}

// conflist returns a node's CNI configuration.
func conflist(t *testing.T, n cluster.Node) []byte {
	t.Helper()
	return []byte(mustPrint(t, n, "cat", cluster.ConflistPath))
}

// pluginObjects returns the raw plugin objects of a CNI configuration.
func pluginObjects(t *testing.T, conflist []byte) []json.RawMessage {
	t.Helper()
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal(conflist, &list); err != nil {
		t.Fatalf("CNI configuration: %v: %s", err, conflist)
	}
	return list.Plugins
}

// typeOf returns the type of a plugin object.
func typeOf(t *testing.T, element json.RawMessage) string {
	t.Helper()
	var e struct{ Type string }
	if err := json.Unmarshal(element, &e); err != nil {
		t.Fatalf("plugin object: %v: %s", err, element)
	}
	return e.Type
}

// lastPluginIs reports whether the last plugin of a configuration has the type.
func lastPluginIs(t *testing.T, conflist []byte, pluginType string) bool {
	t.Helper()
	list := pluginObjects(t, conflist)
	return len(list) > 0 && typeOf(t, list[len(list)-1]) == pluginType
}

// overwriteChain replaces the CNI configuration of the default node, waits until Sluice's plugin is
// the last one again, and returns the elapsed time.
func (tc *testCluster) overwriteChain(t *testing.T, content []byte) time.Duration {
	t.Helper()
	file := tc.node().Path(cluster.ConflistPath)
	temporary := filepath.Join(filepath.Dir(file), ".other")
	if err := errors.Join(os.WriteFile(temporary, content, 0o644),
		os.Chmod(temporary, 0o644)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := os.Rename(temporary, file); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "Sluice's plugin is the last one again", func(context.Context) error {
		if now := conflist(t, tc.node()); !lastPluginIs(t, now, "sluice-cni") {
			return fmt.Errorf("chain %s", now)
		}
		return nil
	})
	return time.Since(begin)
}
