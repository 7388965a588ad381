package suite_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// touched are the directories of a node of which the runtime reads what the chart writes.
var touched = []string{"/etc/cni", "/opt/cni"}

// files are the files of the nodes' directories, by node and name: modes and digests.
type files map[string]string

// fileOf is the key of a node's file.
func fileOf(n cluster.Node, name string) string { return n.Name() + ":" + name }

// nodeFiles reads what is in these directories of all nodes.
func (w *world) nodeFiles(t *testing.T) files {
	t.Helper()
	found := files{}
	for _, n := range w.Nodes() {
		for _, dir := range touched {
			root := n.Path(dir)
			err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				what, err := fileDigest(name, entry)
				found[fileOf(n, dir+strings.TrimPrefix(name, root))] = what
				return err
			})
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	return found
}

// fileDigest tells a file from every other: by its mode, and what is in it if it is a regular one.
func fileDigest(name string, entry fs.DirEntry) (string, error) {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() {
		return info.Mode().String(), err
	}
	content, err := os.ReadFile(name)
	sum := sha256.Sum256(content)
	return info.Mode().String() + " " + hex.EncodeToString(sum[:]), err
}

// conflist reads a node's configuration.
func conflist(t *testing.T, n cluster.Node) []byte {
	t.Helper()
	content, err := os.ReadFile(n.Path(cluster.ConflistPath))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// elements are the plugins of a configuration, as they are written there.
func elements(t *testing.T, conflist []byte) []json.RawMessage {
	t.Helper()
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal(conflist, &list); err != nil {
		t.Fatalf("%v: %s", err, conflist)
	}
	return list.Plugins
}

// typeOf is the executable that an element names.
func typeOf(t *testing.T, element json.RawMessage) string {
	t.Helper()
	var e struct{ Type string }
	if err := json.Unmarshal(element, &e); err != nil {
		t.Fatalf("%v: %s", err, element)
	}
	return e.Type
}

// hasElement reports whether a configuration has an element of a type as its last.
func hasElement(t *testing.T, conflist []byte, kind string) bool {
	t.Helper()
	list := elements(t, conflist)
	return len(list) > 0 && typeOf(t, list[len(list)-1]) == kind
}

// overwriteChain replaces the node's configuration, as other CNI plugins' agents write theirs, and
// returns how long it took until our element was the last again.
func (w *world) overwriteChain(t *testing.T, content []byte) time.Duration {
	t.Helper()
	file := w.node().Path(cluster.ConflistPath)
	writer := filepath.Join(filepath.Dir(file), ".other")
	if err := errors.Join(os.WriteFile(writer, content, 0o644),
		os.Chmod(writer, 0o644)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := os.Rename(writer, file); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTime, "our element is back", func(context.Context) error {
		if now := conflist(t, w.node()); !hasElement(t, now, "sluice-cni") {
			return fmt.Errorf("the chain is %s", now)
		}
		return nil
	})
	return time.Since(begin)
}
