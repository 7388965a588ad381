package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// unpack downloads packages of the distribution and unpacks them into a new directory, without
// installing them.
func unpack(ctx context.Context, dir string, names ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := download(ctx, dir, name); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range packages {
		if err := errors.Join(in(ctx, dir, "dpkg-deb", "-x", file, "."),
			os.Remove(file)); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the content of directories.
func empty(folders ...string) error {
	var errs []error
	for _, folder := range folders {
		archiveEntries, err := os.ReadDir(folder)
		errs = append(errs, err)
		for _, entry := range archiveEntries {
			errs = append(errs, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
