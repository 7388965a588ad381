package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestReplace(t *testing.T) {
	testReplace(t)
}

// TestReplaceWorksWithoutExchange covers file systems and kernels that cannot exchange files.
func TestReplaceWorksWithoutExchange(t *testing.T) {
	if filetest.Private(t) {
		filetest.Deny(t, unix.SYS_RENAMEAT2, unix.EINVAL)
		testReplace(t)
	}
}

func testReplace(t *testing.T) {
	t.Helper()
	for _, row := range []struct {
		name           string
		present        *string
		old            []byte
		want           string
		wantErrChanged bool
	}{
		{"the expected content is replaced", pointer("old"), []byte("old"), "new", false},
		{"foreign content is kept", pointer("theirs"), []byte("old"), "theirs", true},
		{"a missing file is created", nil, nil, "new", false},
		{"a file created in the meantime is kept", pointer("theirs"), nil, "theirs", true},
		{"a file removed in the meantime is not created", nil, []byte("old"), "", true},
		{"an empty file is not a missing file", pointer(""), nil, "", true},
		{"an empty file is replaced", pointer(""), []byte{}, "new", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			testReplaceRow(t, row.present, row.old, row.want, row.wantErrChanged)
		})
	}
}

func pointer(s string) *string { return &s }

func testReplaceRow(t *testing.T, present *string, old []byte, want string, wantErrChanged bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if present != nil {
		createFile(t, path, *present)
	}
	err := file.Replace(path, old, []byte("new"), 0o640)
	if errors.Is(err, file.ErrChanged) != wantErrChanged || (err != nil) != wantErrChanged {
		t.Errorf("error %v, want ErrChanged: %t", err, wantErrChanged)
	}
	data, err := os.ReadFile(path)
	if string(data) != want || (err != nil) != (present == nil && wantErrChanged) {
		t.Errorf("the file contains %q, error %v; want %q", data, err, want)
	}
	checkNoTemporaryFile(t, dir)
}

// TestReplaceKeepsConcurrentWrites checks that Replace loses no content of another process. A
// conflicting writer replaces the file with one version after another, each time after the test has
// read the previous version. At the same time the test calls Replace in a loop.
func TestReplaceKeepsConcurrentWrites(t *testing.T) {
	versions := rulestest.Trials(200, os.Getenv)
	dir := t.TempDir()
	path := createFile(t, filepath.Join(dir, "file"), "0")
	seen := map[string]bool{}
	var mu sync.Mutex
	var writer sync.WaitGroup
	writer.Go(func() {
		for v := 1; v <= versions; v++ {
			content := fmt.Sprint(v)
			tmp := path + ".other"
			if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(tmp, path); err != nil {
				t.Error(err)
			}
			for found := false; !found; { // until the test has read the version
				mu.Lock()
				found = seen[content]
				mu.Unlock()
				runtime.Gosched()
			}
		}
	})
	const timeout = 30 * time.Second // for each version: a disk may be slow
	deadline := time.Now().Add(timeout)
	for done := false; !done; {
		if time.Now().After(deadline) {
			t.Fatalf("no new version within %v: the last one was lost", timeout)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		version, isOwn := strings.CutPrefix(string(data), "own ")
		mu.Lock()
		if !seen[version] {
			deadline = time.Now().Add(timeout)
		}
		seen[version] = true
		done = version == fmt.Sprint(versions)
		mu.Unlock()
		next := "own " + version
		if isOwn {
			next = version
		}
		if err := file.Replace(path, data, []byte(next), 0o600); err != nil &&
			!errors.Is(err, file.ErrChanged) {
			t.Fatal(err)
		}
	}
	writer.Wait()
	checkNoTemporaryFile(t, dir)
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	path := createFile(t, filepath.Join(dir, "file"), "theirs")
	if err := file.RemoveIf(path, []byte("old")); !errors.Is(err, file.ErrChanged) {
		t.Errorf("RemoveIf of a file with other content: error %v, want ErrChanged", err)
	}
	if got := readFile(t, path); got != "theirs" {
		t.Errorf("the file contains %q, want the content of the other process", got)
	}
	if err := file.RemoveIf(path, []byte("theirs")); err != nil {
		t.Errorf("RemoveIf of a file with the given content: %v", err)
	}
	if err := file.RemoveIf(path, []byte("theirs")); err != nil {
		t.Errorf("RemoveIf of a missing file: error %v, want none", err)
	}
	createFile(t, path, "again")
	for _, want := range []bool{true, false} {
		if existed, err := file.Remove(path); err != nil || existed != want {
			t.Errorf("Remove: existed %t, error %v; want %t", existed, err, want)
		}
	}
	checkNoTemporaryFile(t, dir)
}

func TestRemoveReportsARemovedFileIfTheDirectoryCannotBeSynced(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	path := createFile(t, filepath.Join(t.TempDir(), "f"), "content")
	filetest.Deny(t, unix.SYS_FSYNC, unix.EIO)
	_, err := file.Remove(path)
	if _, statErr := os.Stat(path); !os.IsNotExist(statErr) || err == nil ||
		!strings.Contains(err.Error(), "the file is removed, but a loss of power may undo it") {
		t.Errorf("error %v, want a removed file that may reappear; stat: %v, want no file", err, statErr)
	}
}

func TestRemoveTemporary(t *testing.T) {
	dir := t.TempDir()
	createFile(t, filepath.Join(dir, ".sluice-123.tmp"), "half")
	for _, foreign := range []string{"10-calico.conflist", ".sluice-notes", ".other-1.tmp"} {
		createFile(t, filepath.Join(dir, foreign), "theirs")
	}
	removed, err := file.RemoveTemporary(dir)
	if err != nil || len(removed) != 1 || removed[0] != ".sluice-123.tmp" {
		t.Errorf("removed %v, error %v, want only the temporary file", removed, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("%d of 3 foreign files remain, want all", len(entries))
	}
	if removed, err := file.RemoveTemporary(filepath.Join(dir, "absent")); err != nil || removed != nil {
		t.Errorf("in a missing directory: removed %v, error %v, want neither", removed, err)
	}
}
