package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Remove removes the file at path, syncs the directory, and reports whether the file existed. After
// an error, existed is always true, even if the file does not exist. Remove removes a symbolic
// link, not the link's target.
func Remove(path string) (existed bool, err error) {
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, unchangedError("remove", path, err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return true, &Error{Op: "remove", Path: path, State: Removed, Err: err}
	}
	return true, nil
}

// RemoveIf removes a file that other processes write too, if its content equals old. If the content
// differs, the error wraps [ErrChanged] and the file stays. A file that is missing when RemoveIf
// starts is not an error.
func RemoveIf(path string, old []byte) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkContent(path, old); err != nil {
		return unchangedError("remove", path, err)
	}
	// Rename the file and read it again: after the rename no process can open it by its name.
	aside := filepath.Join(filepath.Dir(path), prefix+time.Now().Format("150405.000000000")+suffix)
	if err := os.Rename(path, aside); err != nil {
		return unchangedError("remove", path, err)
	}
	if err := checkContent(aside, old); err != nil {
		// Move the changed file back, unless another process has created a newer one at path.
		switch restoreErr := renameToNew(aside, path); {
		case errors.Is(restoreErr, ErrChanged):
			_ = os.Remove(aside)
		case restoreErr != nil:
			err = errors.Join(err, fmt.Errorf("its content is in %s: %w", aside, restoreErr))
		}
		return unchangedError("remove", path, err)
	}
	if _, err := Remove(aside); err != nil {
		return &Error{Op: "remove", Path: path, State: Removed, Err: err}
	}
	return nil
}

// RemoveTemporary removes temporary files of killed processes from dir, and returns their names.
// Other processes must not use this package in dir at the same time: hold a lock. A missing
// directory is not an error.
func RemoveTemporary(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		if !isTemporary(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if _, err := Remove(filepath.Join(dir, e.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}
