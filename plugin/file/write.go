package file

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write writes content to the file at path, and reports whether the content or the mode changed.
// The file gets the permission bits of mode, whatever the umask is. If only the mode differs, the
// content is not written.
func Write(path string, content []byte, mode fs.FileMode) (changed bool, err error) {
	target, info, err := followLinks(path)
	if err != nil {
		return false, unchangedError("write", path, err)
	}
	if info != nil {
		old, err := os.ReadFile(target)
		if err != nil {
			return false, unchangedError("write", path, err)
		}
		if bytes.Equal(old, content) {
			return setMode("write", path, target, info, mode)
		}
	}
	return replaceTarget("write", path, target, bytes.NewReader(content), int64(len(content)), mode)
}

// Copy copies the regular file source to path, and reports whether the file at path changed. It
// streams the content. A running program keeps using the old file.
func Copy(path, source string, mode fs.FileMode) (changed bool, err error) {
	from, err := os.Open(source)
	if err != nil {
		return false, unchangedError("copy", path, err)
	}
	defer from.Close() //nolint:errcheck // only read from
	size, err := regularSize(from)
	if err != nil {
		return false, unchangedError("copy", path, err)
	}
	target, info, err := followLinks(path)
	if err != nil {
		return false, unchangedError("copy", path, err)
	}
	if info != nil && info.Size() == size {
		same, err := Same(target, source)
		if err != nil {
			return false, unchangedError("copy", path, err)
		}
		if same {
			return setMode("copy", path, target, info, mode)
		}
	}
	return replaceTarget("copy", path, target, from, size, mode)
}

// regularSize returns the size of a file. It returns an error if the file is not regular.
func regularSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, &fs.PathError{Op: "copy", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	return info.Size(), nil
}

// Same reports whether two files have the same content. A missing file is an error.
func Same(path, other string) (bool, error) {
	a, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer a.Close() //nolint:errcheck // only read from
	b, err := os.Open(other)
	if err != nil {
		return false, err
	}
	defer b.Close() //nolint:errcheck // only read from
	return sameStream(a, b)
}

// replaceTarget replaces the target with new content, and reports whether it changed the target.
func replaceTarget(
	op, path, target string, content io.ReadSeeker, size int64, mode fs.FileMode,
) (bool, error) {
	t, err := createTemporary(target, content, size, mode)
	if err != nil {
		return false, unchangedError(op, path, err)
	}
	if err := os.Rename(t.path, target); err != nil {
		t.drop()
		return false, unchangedError(op, path, err)
	}
	return true, syncRename(op, path, target, t.info)
}

// syncRename syncs the directory after a rename, and verifies that the target is the new file.
func syncRename(op, path, target string, placed fs.FileInfo) error {
	if err := syncDirectory(filepath.Dir(target)); err != nil {
		return &Error{Op: op, Path: path, State: Replaced, Err: err}
	}
	info, err := os.Stat(target)
	if err == nil && !os.SameFile(info, placed) || errors.Is(err, fs.ErrNotExist) {
		err = ErrChanged
	}
	if err != nil {
		return &Error{Op: op, Path: path, State: Unknown, Err: err}
	}
	return nil
}

// setMode sets the mode of the target, and reports whether it changed the mode.
func setMode(op, path, target string, info fs.FileInfo, mode fs.FileMode) (bool, error) {
	if info.Mode().Perm() == mode.Perm() {
		return false, nil
	}
	if err := os.Chmod(target, mode.Perm()); err != nil {
		return false, unchangedError(op, path, err)
	}
	return true, nil
}

// followLinks follows symbolic links from path, and returns the path and the info of the regular
// file at their end. If nothing exists at path, it returns path itself and no info. A dangling link
// is an error, and so is a file that is not regular.
func followLinks(path string) (string, fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	if err != nil || info.Mode().IsRegular() {
		return path, info, err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, err
	}
	if info, err = os.Stat(target); err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() {
		return "", nil, &fs.PathError{
			Op: "open", Path: target, Err: errors.New("not a regular file"),
		}
	}
	return target, info, nil
}

// syncDirectory syncs a directory if its file system supports this.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
