package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Remove removes the file at path, if there is one, for good, and reports whether there was one. A
// symbolic link is removed, not what it names.
func Remove(path string) (existed bool, err error) {
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, failed("remove", path, err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return true, &Error{Op: "remove", Path: path, State: Replaced, Err: err}
	}
	return true, nil
}

// RemoveIf removes a file that others write too, if it holds was. Otherwise [ErrChanged] is in the
// error and the file stays. A file that is gone already is no error.
func RemoveIf(path string, was []byte) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkContent(path, was); err != nil {
		return failed("remove", path, err)
	}
	// Read it again when no process can write it by its name any more.
	aside := filepath.Join(filepath.Dir(path), prefix+time.Now().Format("150405.000000000")+suffix)
	if err := os.Rename(path, aside); err != nil {
		return failed("remove", path, err)
	}
	t := &temporary{path: aside}
	if err := checkContent(aside, was); err != nil {
		// Where a newer file has the name by now, that one stays.
		if back := t.create(path); back != nil && !errors.Is(back, ErrChanged) {
			err = errors.Join(err, back)
		}
		return failed("remove", path, err)
	}
	if _, err := Remove(aside); err != nil {
		return failed("remove", path, err)
	}
	return nil
}

// Sweep removes temporary files from dir that a killed process left there, and returns their names.
// Nobody else may be writing there by this package at the same time: hold a lock. A directory that
// does not exist is clean.
func Sweep(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var swept []string
	var errs []error
	for _, e := range entries {
		if !isTemporary(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if _, err := Remove(filepath.Join(dir, e.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, e.Name())
	}
	return swept, errors.Join(errs...)
}
