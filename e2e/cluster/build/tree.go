package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A tree is the path of a directory in which the file system of a node is assembled.
type tree string

// path returns the path of a file of the tree on this machine.
func (t tree) path(file string) string { return filepath.Join(string(t), file) }

// write creates or replaces a file.
func (t tree) write(file string, content []byte, mode fs.FileMode) error {
	if err := errors.Join(os.MkdirAll(filepath.Dir(t.path(file)), 0o755),
		os.RemoveAll(t.path(file))); err != nil {
		return err
	}
	return os.WriteFile(t.path(file), content, mode)
}

// link creates a symbolic link, and replaces an existing file.
func (t tree) link(target, file string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(t.path(file)), 0o755), os.RemoveAll(t.path(file)),
		os.Symlink(target, t.path(file)))
}

// copy copies the files of a directory to the same paths in the tree. Files in directories named
// bin become executable, because a file in a Go module has no mode.
func (t tree) copy(from string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if filepath.Base(filepath.Dir(file)) == "bin" {
			mode = 0o755
		}
		return t.write(strings.TrimPrefix(file, from), content, mode)
	})
}

// copyProgram copies a program and the libraries that it is linked with from another tree.
func (t tree) copyProgram(ctx context.Context, from tree, file string) error {
	ldd := exec.CommandContext(ctx, "/usr/sbin/chroot", string(from), "/usr/bin/ldd", file)
	out, err := ldd.Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", file, withStderr(err))
	}
	var errs []error
	for _, word := range append(strings.Fields(string(out)), file) {
		if !filepath.IsAbs(word) {
			continue // not a path, such as => in the output of ldd
		}
		file, err := filepath.EvalSymlinks(from.path(word))
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		errs = append(errs, err, t.write(word, content, 0o755))
	}
	return errors.Join(errs...)
}
