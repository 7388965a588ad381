package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Replace is Write for a file that others write too. Only if the file holds was does it get
// content; was == nil means that there must be no file, an empty was that it must be empty.
// Otherwise [ErrChanged] is wrapped by the error and what somebody else wrote stays, even if they
// wrote it between our last look and the change: old and new content are exchanged, so that what
// was really displaced can be compared, and put back. File systems that cannot exchange two files
// leave a gap of some microseconds there.
func Replace(path string, was, content []byte, mode fs.FileMode) error {
	target, info, err := resolve(path)
	if err != nil {
		return failed("write", path, err)
	}
	if (info == nil) != (was == nil) {
		return failed("write", path, ErrChanged)
	}
	if info != nil {
		if err := holds(target, was); err != nil {
			return failed("write", path, err)
		}
	}
	t, err := prepare(target, bytes.NewReader(content), int64(len(content)), mode)
	if err != nil {
		return failed("write", path, err)
	}
	if was == nil {
		err = t.create(target)
	} else {
		err = t.exchange(target, was, content)
	}
	if err != nil {
		return failed("write", path, err)
	}
	return settle("write", path, target, t.info)
}

// holds returns ErrChanged unless the file at path has the content was.
func holds(path string, was []byte) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(data, was) || errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	return err
}

// create creates the temporary file with a unique name.
func (t *temporary) create(target string) error {
	err := unix.Renameat2(unix.AT_FDCWD, t.path, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		// A second name, refused where the name is taken. The first one goes away below.
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

// exchange lets the temporary file and the file at target change places, and undoes it where the
// file that came out is not the one that was.
func (t *temporary) exchange(target string, was, content []byte) error {
	switch err := swap(t.path, target); {
	case unsupported(err):
		if err := holds(target, was); err != nil {
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
	if err == nil && bytes.Equal(out, was) {
		t.drop()
		return nil
	}
	return errors.Join(ErrChanged, err, t.putBack(target, out, content))
}

// putBack returns what came out to its place. Whoever writes there meanwhile is the newest and
// wins: what comes out must be what was last put in.
func (t *temporary) putBack(target string, held, placed []byte) error {
	const tries = 100 // a writer that is faster a hundred times in a row does not exist
	for range tries {
		if err := swap(t.path, target); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				t.drop() // removed, which is newer than what came out
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

func swap(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// unsupported reports whether the file system or the kernel does not know the kind of rename
// (renameat2(2), ERRORS).
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.ENOTSUP)
}
