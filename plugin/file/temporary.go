package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A temporary is a complete and synced temporary file next to the file that it will replace.
type temporary struct {
	path string
	info fs.FileInfo
}

// createTemporary writes size bytes of content to a new temporary file next to the file at path. If
// the file at path exists and the process may change owners, the temporary file gets the owner of
// that file.
func createTemporary(
	path string, content io.ReadSeeker, size int64, mode fs.FileMode,
) (*temporary, error) {
	f, err := os.CreateTemp(filepath.Dir(path), prefix+"*"+suffix)
	if err != nil {
		return nil, err
	}
	t := &temporary{path: f.Name()}
	err = t.fill(f, path, content, size, mode)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.drop()
		return nil, err
	}
	return t, nil
}

// fill writes the content to the temporary file f, sets the file's owner and mode, syncs the file,
// and verifies its content.
func (t *temporary) fill(
	f *os.File, path string, content io.ReadSeeker, size int64, mode fs.FileMode,
) error {
	n, err := io.Copy(f, content)
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%w: %d of %d bytes", io.ErrShortWrite, n, size)
	}
	if err := copyOwner(f, path); err != nil {
		return err
	}
	// Set the mode after the owner, because chown may clear mode bits.
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := verify(f, content, size); err != nil {
		return err
	}
	t.info, err = f.Stat()
	return err
}

// copyOwner gives the new file f the owner of the file at path, if that file exists.
func copyOwner(f *os.File, path string) error {
	old, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	created, err := f.Stat()
	if err != nil {
		return err
	}
	want, have := owner(old), owner(created)
	if want == have {
		return nil
	}
	// Without CAP_CHOWN the file keeps this process's owner, which is better than a failure.
	if err := f.Chown(want.uid, want.gid); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// ids are the user and the group of a file.
type ids struct{ uid, gid int }

func owner(info fs.FileInfo) ids {
	stat := info.Sys().(*syscall.Stat_t)
	return ids{int(stat.Uid), int(stat.Gid)}
}

// verify reads the written file, and returns an error unless it has the content.
func verify(f *os.File, content io.ReadSeeker, size int64) error {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	same, err := sameStream(io.NewSectionReader(f, 0, size+1), content)
	if err != nil {
		return fmt.Errorf("read the new file: %w", err)
	}
	if !same {
		return errors.New("the new file does not contain what was written")
	}
	return nil
}

// sameStream reports whether two streams have the same bytes.
func sameStream(a, b io.Reader) (bool, error) {
	const chunk = 64 << 10
	blockA, blockB := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(a, blockA)
		if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		m, errB := io.ReadFull(b, blockB)
		if errB != nil && errB != io.EOF && !errors.Is(errB, io.ErrUnexpectedEOF) {
			return false, errB
		}
		if !bytes.Equal(blockA[:n], blockB[:m]) {
			return false, nil
		}
		if err != nil || errB != nil {
			return true, nil
		}
	}
}

// drop removes the temporary file. If that fails, [RemoveTemporary] removes it later.
func (t *temporary) drop() { _ = os.Remove(t.path) }

// Signal creates and removes a temporary file in a directory, so that processes that watch the
// directory read its files again.
func Signal(dir string) error {
	f, err := os.CreateTemp(dir, prefix+"*"+suffix)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
