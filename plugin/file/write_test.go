package file_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/file"
)

func TestWrite(t *testing.T) {
	for name, row := range map[string]struct {
		before  func(t *testing.T, path string)
		mode    fs.FileMode
		changed bool
	}{
		"a new file is created":           {func(*testing.T, string) {}, 0o600, true},
		"a new file has exactly the mode": {func(*testing.T, string) {}, 0o666, true},
		"other content is replaced": {func(t *testing.T, p string) {
			createFile(t, p, "old")
		}, 0o600, true},
		"longer content is replaced": {func(t *testing.T, p string) {
			createFile(t, p, "new and more")
		}, 0o600, true},
		"a file with equal content and mode is not changed": {func(t *testing.T, p string) {
			createFile(t, p, "new")
		}, 0o600, false},
		"equal content gets another mode": {func(t *testing.T, p string) {
			createFile(t, p, "new")
		}, 0o644, true},
		"the target of a link is written": {func(t *testing.T, p string) {
			link(t, createFile(t, p+".target", "old"), p)
		}, 0o600, true},
	} {
		t.Run(name, func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(0o077))
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			row.before(t, path)
			linked, _ := os.Readlink(path)
			changed, err := file.Write(path, []byte("new"), row.mode)
			if err != nil || changed != row.changed {
				t.Errorf("Write: changed %t, error %v; want %t", changed, err, row.changed)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := readFile(t, path); got != "new" || info.Mode() != row.mode {
				t.Errorf("the file contains %q with mode %v, want %q with %v", got, info.Mode(), "new",
					row.mode)
			}
			if now, _ := os.Readlink(path); now != linked {
				t.Errorf("the link to %q was changed to %q", linked, now)
			}
			checkNoTemporaryFile(t, dir)
		})
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestAnEqualFileKeepsItsInode(t *testing.T) {
	path := createFile(t, filepath.Join(t.TempDir(), "file"), "content")
	source := createFile(t, filepath.Join(t.TempDir(), "source"), "content")
	before, _ := os.Stat(path)
	for range 2 {
		if _, err := file.Write(path, []byte("content"), 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Copy(path, source, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("the file was rewritten, want the same inode")
	}
}

func TestOwnerIsKept(t *testing.T) {
	path := createFile(t, filepath.Join(t.TempDir(), "file"), "old")
	if err := os.Chown(path, 4711, 4712); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return // this process may not change owners, so there is nothing to test
		}
		t.Fatal(err)
	}
	if _, err := file.Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 4711 || stat.Gid != 4712 {
		t.Errorf("owner %d:%d, want 4711:4712", stat.Uid, stat.Gid)
	}
}

func TestErrorsReportTheStateOfTheFile(t *testing.T) {
	dir := t.TempDir()
	link(t, filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangling"))
	for _, row := range []struct {
		name, path string
		attempt    func(path string) error
		want       []string
	}{
		{
			"no directory", dir + "/no/file", write,
			[]string{
				"write " + dir + "/no/file: ", "no such file or directory", "there is no such file",
			},
		},
		{"a directory with that name", dir, write, []string{"write " + dir +
			": not a regular file (the old file is untouched)"}},
		{
			"a dangling link", dir + "/dangling", write,
			[]string{"nowhere", "no such file or directory"},
		},
		{
			"no source", dir + "/file", copyFrom(dir + "/absent"),
			[]string{"copy " + dir + "/file: ", dir + "/absent", "there is no such file"},
		},
		{
			"a source that is a directory", dir + "/file", copyFrom(dir),
			[]string{"not a regular file"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.attempt(row.path)
			var typed *file.Error
			if !errors.As(err, &typed) || typed.Path != row.path {
				t.Fatalf("error %v, want a file.Error with the path %s", err, row.path)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}

func write(path string) error {
	_, err := file.Write(path, []byte("new"), 0o600)
	return err
}

func copyFrom(source string) func(string) error {
	return func(path string) error {
		_, err := file.Copy(path, source, 0o755)
		return err
	}
}

func TestAProgramIsReplacedWhileItRuns(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin")
	if _, err := file.Copy(path, sleep, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	next := createFile(t, filepath.Join(dir, "next"), strings.Repeat("another program\n", 10_000))
	changed, err := file.Copy(path, next, 0o755)
	if err != nil || !changed {
		t.Fatalf("Copy over a running program: changed %t, error %v, want true", changed, err)
	}
	if same, err := file.Same(path, next); err != nil || !same {
		t.Errorf("Same: %t, error %v, want the new program", same, err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the old program is no longer running: %v", err)
	}
}

func TestAReaderSeesTheOldOrTheNewContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	contents := []string{strings.Repeat("a", 100_000), strings.Repeat("b", 70_000)}
	createFile(t, path, contents[0])
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			data, err := os.ReadFile(path)
			if err != nil || string(data) != contents[0] && string(data) != contents[1] {
				t.Errorf("a reader gets %d bytes, error %v, want the old or the new content", len(data),
					err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 50 {
		if _, err := file.Write(path, []byte(contents[(i+1)%2]), 0o600); err != nil {
			t.Error(err)
		}
	}
	close(done)
	reader.Wait()
}
