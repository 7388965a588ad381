package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Replace is like Write, but for a file that other processes write too. It writes content only if
// the content of the file is old. If old is nil, the file must not exist; if old is empty but not
// nil, the file must be empty. If this condition is not met, the error wraps [ErrChanged], and the
// content of the other process stays. It stays even if it was written between the comparison and
// the replacement: Replace exchanges the files, compares the content of the replaced file with old,
// and exchanges the files again if it differs. On file systems that cannot exchange two files, a
// change within some microseconds may be lost.
func Replace(path string, old, content []byte, mode fs.FileMode) error {
	target, info, err := followLinks(path)
	if err != nil {
		return unchangedError("write", path, err)
	}
	if (info == nil) != (old == nil) {
		return unchangedError("write", path, ErrChanged)
	}
	if info != nil {
		if err := checkContent(target, old); err != nil {
			return unchangedError("write", path, err)
		}
	}
	t, err := createTemporary(target, bytes.NewReader(content), int64(len(content)), mode)
	if err != nil {
		return unchangedError("write", path, err)
	}
	if old == nil {
		if err = renameToNew(t.path, target); err != nil {
			t.drop()
		}
	} else {
		err = t.exchange(target, old, content)
	}
	if err != nil {
		return unchangedError("write", path, err)
	}
	return syncRename("write", path, target, t.info)
}

// checkContent returns nil if the content of the file at path equals old, and ErrChanged if it
// differs or the file is missing.
func checkContent(path string, old []byte) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(data, old) || errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	return err
}

// renameToNew renames a file to target. If target exists, it returns [ErrChanged].
func renameToNew(path, target string) error {
	err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if isUnsupported(err) {
		// Link fails if the target exists. If Remove fails, RemoveTemporary removes the name later.
		if err = os.Link(path, target); err == nil {
			_ = os.Remove(path)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrChanged
	}
	return err
}

// exchange exchanges the temporary file, which has the given content, and the file at target, and
// then removes the replaced file. If the content of the replaced file is not old, exchange undoes
// the exchange. If the file system cannot exchange files, it compares the content of the target
// with old, and then renames the temporary file to target.
func (t *temporary) exchange(target string, old, content []byte) error {
	switch err := exchangeFiles(t.path, target); {
	case isUnsupported(err):
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
	replaced, err := os.ReadFile(t.path)
	if err == nil && bytes.Equal(replaced, old) {
		t.drop()
		return nil
	}
	return errors.Join(ErrChanged, err, t.putBack(target, replaced, content))
}

// putBack exchanges the temporary file and the file at target again, to undo an exchange.
// inTemporary and inTarget are the contents of the two files before the call. If another process
// writes the target meanwhile, its content must stay. Therefore putBack repeats the exchange until
// the content that it takes out of the target is what the previous exchange has put there.
func (t *temporary) putBack(target string, inTemporary, inTarget []byte) error {
	// Each repetition needs a write of another process between two exchanges. So many repetitions
	// do not happen in practice.
	const maxExchanges = 100
	for range maxExchanges {
		if err := exchangeFiles(t.path, target); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				t.drop() // another process has removed the file after the exchange
				return nil
			}
			return err
		}
		replaced, err := os.ReadFile(t.path)
		if err != nil {
			return err
		}
		if bytes.Equal(replaced, inTarget) {
			t.drop()
			return nil
		}
		inTemporary, inTarget = replaced, inTemporary
	}
	return errors.New("other processes keep writing it")
}

// exchangeFiles exchanges two files atomically.
func exchangeFiles(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// isUnsupported reports whether the file system or the kernel does not support the rename flag
// (renameat2(2), ERRORS).
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.ENOTSUP)
}
