package file_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/file"
)

func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	regular, link, pipe := filepath.Join(dir, "regular"), filepath.Join(dir, "link"),
		filepath.Join(dir, "pipe")
	for _, err := range []error{
		os.WriteFile(regular, []byte("content"), 0o600), os.Symlink(regular, link),
		unix.Mkfifo(pipe, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{regular, link} {
		if data, err := file.ReadRegular(path); string(data) != "content" || err != nil {
			t.Errorf("%s: %q, error %v, want the content", path, data, err)
		}
	}
	for path, want := range map[string]error{
		dir: file.ErrNotRegular, pipe: file.ErrNotRegular, regular + "2": fs.ErrNotExist,
	} {
		if _, err := file.ReadRegular(path); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", path, err, want)
		}
	}
}
