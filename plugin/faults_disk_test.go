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

// TestVerbsSucceedOnAFullDisk checks that the verbs succeed while the disk of the run directory is
// full, that no file is incomplete, and that the log of ADD reports the error of the disk. Once
// there is space, ADD writes its record.
func TestVerbsSucceedOnAFullDisk(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	ns := netnstest.New(t)
	c := newCall(t, ns)
	c.runDir = filetest.Disk(t, "256k")
	c.stdin = c.configuration()
	env := newTestEnv(t, "sidecar")
	free := filetest.Fill(t, c.runDir)
	env.add(t, c)
	if log := env.stderr.String(); !strings.Contains(log, "no space left on device") {
		t.Errorf("the log does not contain the error of the disk: %s", log)
	}
	c.checkNoRecord(t)
	for _, verb := range []string{"CHECK", "STATUS", "STATUS"} {
		if e := env.call(verb, c); e != nil {
			t.Errorf("%s: %+v", verb, e)
		}
	}
	checkComplete(t, c.runDir)
	free()
	if e := env.call("STATUS", c); e != nil {
		t.Errorf("STATUS: %+v", e)
	}
	env.add(t, c)
	c.record(t)

	free = filetest.Fill(t, c.runDir)
	if e := env.call("DEL", c); e != nil {
		t.Errorf("DEL: %+v", e)
	}
	c.checkNoRecord(t)
	checkComplete(t, c.runDir)
	free()
}

// checkComplete fails the test if a record is incomplete, or if a temporary file remains, whose
// name begins with a dot (file.TempPrefix).
func checkComplete(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		isRecord := filepath.Ext(path) == ".json"
		if isRecord && !json.Valid(text) || strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s is an incomplete record or a temporary file: %q", path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
