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
		if err := errors.Join(runIn(ctx, dir, "dpkg-deb", "-x", file, "."),
			os.Remove(file)); err != nil {
			return err
		}
	}
	return nil
}

// removeContents removes everything in the directories, but not the directories.
func removeContents(folders ...string) error {
	var errs []error
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		errs = append(errs, err)
		for _, entry := range entries {
			errs = append(errs, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
