package suite_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// touched are the directories of a node of which the runtime reads what the chart writes.
var touched = []string{"/etc/cni", "/opt/cni"}

// files are the files of a node's directories, by name: modes and digests.
type files map[string]string

// nodeFiles reads what is in these directories.
func (w *world) nodeFiles(t *testing.T) files {
	t.Helper()
	found := files{}
	for _, dir := range touched {
		root := w.node().Path(dir)
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			what, err := fileDigest(name, entry)
			found[dir+strings.TrimPrefix(name, root)] = what
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
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

// conflist reads the node's configuration.
func (w *world) conflist(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(w.node().Path(cluster.ConflistPath))
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

// hasElement tells whether a configuration has an element of a type as its last.
func hasElement(t *testing.T, conflist []byte, kind string) bool {
	t.Helper()
	list := elements(t, conflist)
	return len(list) > 0 && typeOf(t, list[len(list)-1]) == kind
}
