package plugin_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// While the disk of the run directory is full, pods are redirected, checked and removed all the
// same, nothing is left half written, and what could not be kept is in the log. Once there is
// space, an ADD keeps its record.
func TestAFullDisk(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	ns := netnstest.New(t)
	c := newCall(t, ns)
	c.runDir = filetest.Disk(t, "256k")
	c.stdin = c.with()
	w := newWorld(t, "sidecar")
	free := filetest.Fill(t, c.runDir)
	w.add(t, c)
	if log := w.stderr.String(); !strings.Contains(log, "no space left on device") {
		t.Errorf("the log does not say what was not kept: %s", log)
	}
	c.wantNoRecord(t)
	for _, verb := range []string{"CHECK", "STATUS", "STATUS"} {
		if e := w.call(verb, c); e != nil {
			t.Errorf("%s: %+v", verb, e)
		}
	}
	wantWhole(t, c.runDir)
	free()
	if e := w.call("STATUS", c); e != nil {
		t.Errorf("STATUS: %+v", e)
	}
	w.add(t, c)
	c.record(t)

	free = filetest.Fill(t, c.runDir)
	if e := w.call("DEL", c); e != nil {
		t.Errorf("DEL: %+v", e)
	}
	c.wantNoRecord(t)
	wantWhole(t, c.runDir)
	free()
}

// wantWhole fails the test if a file was left half written.
func wantWhole(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		ours := filepath.Ext(path) == ".json"
		if ours && !json.Valid(text) || strings.Contains(path, ".tmp") {
			t.Errorf("%s has %d bytes", path, len(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
