package file_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestAFullDiskNeverTruncates checks that the file is either unchanged or complete after a write to
// a disk that may be too small. Istio's installer has installed truncated plugins without an error
// if their size exceeded the disk by less than one buffer.
func TestAFullDiskNeverTruncates(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	old := bytes.Repeat([]byte("old plugin "), 3000)
	for _, size := range []int{
		1, 4096, 4097, 900 << 10, 1<<20 - 40<<10, 1 << 20, 1<<20 + 1, 1<<20 + 4096, 1<<20 + 32<<10,
		3 << 20,
	} {
		dir := filetest.Disk(t, "1m")
		path := filepath.Join(dir, "plugin")
		if err := os.WriteFile(path, old, 0o755); err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte("x"), size)
		source := createFile(t, filepath.Join(t.TempDir(), "source"), string(content))
		for _, attempt := range []func() (bool, error){
			func() (bool, error) { return file.Copy(path, source, 0o755) },
			func() (bool, error) {
				return false, file.Replace(path, []byte(readFile(t, path)), content, 0o755)
			},
		} {
			before := readFile(t, path)
			changed, err := attempt()
			switch got := readFile(t, path); {
			case err == nil && got != string(content):
				t.Errorf("%d bytes: no error, but the plugin of %d bytes differs from the source", size,
					len(got))
			case err != nil && got != before:
				t.Errorf("%d bytes: error %v, plugin of %d bytes, want the unchanged plugin", size, err,
					len(got))
			case err != nil && (!file.IsFull(err) ||
				!strings.Contains(err.Error(), "the old file is untouched")):
				t.Errorf("%d bytes: error %v, want a full disk and an untouched file", size, err)
			case err != nil && changed:
				t.Errorf("%d bytes: Copy reports a change although it returns the error %v", size, err)
			}
			checkNoTemporaryFile(t, dir)
		}
		if size > 1<<20 && readFile(t, path) != string(old) {
			t.Errorf("%d bytes were written to a disk of one mebibyte", size)
		}
	}
}

func TestErrorsNameAReadOnlyFileSystem(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	dir := t.TempDir()
	path := createFile(t, filepath.Join(dir, "file"), "old")
	source := createFile(t, filepath.Join(t.TempDir(), "source"), "new")
	writable := filetest.ReadOnly(t, dir)
	for description, attempt := range map[string]func() error{
		"write":            func() error { return write(path) },
		"mode":             func() error { _, err := file.Write(path, []byte("old"), 0o755); return err },
		"copy":             func() error { return copyFrom(source)(path) },
		"replace":          func() error { return file.Replace(path, []byte("old"), []byte("new"), 0o600) },
		"create":           func() error { return file.Replace(path+"2", nil, []byte("new"), 0o600) },
		"remove":           func() error { _, err := file.Remove(path); return err },
		"remove unchanged": func() error { return file.RemoveIf(path, []byte("old")) },
	} {
		if err := attempt(); !file.IsReadOnly(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want a read-only file system and the path", description, err)
		}
	}
	if got := readFile(t, path); got != "old" {
		t.Errorf("the file contains %q, want it unchanged", got)
	}
	writable()
	if err := write(path); err != nil || readFile(t, path) != "new" {
		t.Errorf("after the directory is writable again: error %v, content %q, want the new content",
			err, readFile(t, path))
	}
}
