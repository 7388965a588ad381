package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Replace is like Write for a file that other processes write too. It writes content only if the
// file contains was; a nil was means that the file must not exist, an empty one that it must be
// empty. Otherwise the error wraps [ErrChanged], and the other process's content stays, even if it
// was written between the comparison and the replacement: Replace exchanges old and new content,
// compares the old one, and exchanges them again if it differs. On file systems that cannot
// exchange two files, a change within some microseconds may be lost.
func Replace(path string, old, content []byte, mode fs.FileMode) error {
	target, info, err := resolve(path)
	if err != nil {
		return failed("write", path, err)
	}
	if (info == nil) != (old == nil) {
		return failed("write", path, ErrChanged)
	}
	if info != nil {
		if err := checkContent(target, old); err != nil {
			return failed("write", path, err)
		}
	}
	t, err := prepare(target, bytes.NewReader(content), int64(len(content)), mode)
	if err != nil {
		return failed("write", path, err)
	}
	if old == nil {
		err = t.create(target)
	} else {
		err = t.exchange(target, old, content)
	}
	if err != nil {
		return failed("write", path, err)
	}
	return syncRename("write", path, target, t.info)
}

// checkContent returns ErrChanged unless the file at path has the content was.
func checkContent(path string, old []byte) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(data, old) || errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	return err
}

// create creates the temporary file with a unique name.
func (t *temporary) create(target string) error {
	err := unix.Renameat2(unix.AT_FDCWD, t.path, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		// Link fails if the target exists. The temporary name is removed afterwards.
		err = os.Link(t.path, target)
		t.drop()
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrChanged
	}
	if err != nil {
		t.drop()
	}
	return err
}

// exchange exchanges the temporary file and the file at target, and undoes this if the old file has
// another content than was.
func (t *temporary) exchange(target string, old, content []byte) error {
	switch err := exchangeFiles(t.path, target); {
	case unsupported(err):
		if err := checkContent(target, old); err != nil {
			t.drop()
			return err
		}
		if err := os.Rename(t.path, target); err != nil {
			t.drop()
			return err
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		t.drop()
		return ErrChanged
	case err != nil:
		t.drop()
		return err
	}
	out, err := os.ReadFile(t.path)
	if err == nil && bytes.Equal(out, old) {
		t.drop()
		return nil
	}
	return errors.Join(ErrChanged, err, t.putBack(target, out, content))
}

// putBack exchanges the files again. If another process writes meanwhile, its content stays: the
// exchange is repeated until the replaced file is the one that was placed last.
func (t *temporary) putBack(target string, held, placed []byte) error {
	const tries = 100 // no writer is faster a hundred times in a row
	for range tries {
		if err := exchangeFiles(t.path, target); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				t.drop() // removed, which is newer than the replaced file
				return nil
			}
			return err
		}
		out, err := os.ReadFile(t.path)
		if err != nil {
			return err
		}
		if bytes.Equal(out, placed) {
			t.drop()
			return nil
		}
		held, placed = out, held
	}
	return errors.New("it is being written all the time")
}

func exchangeFiles(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// unsupported reports whether the file system or the kernel does not support the rename flag
// (renameat2(2), ERRORS).
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.ENOTSUP)
}
