package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of symbolic links that the kernel follows in a path
// (path_resolution(7)).
const maxLinks = 40

// ResolveIn resolves an absolute path like a process with the root directory root. The result is
// root or a path below it: absolute symbolic links are resolved below root, and ".." does not leave
// root. For a missing path the error wraps [fs.ErrNotExist].
func ResolveIn(root, path string) (string, error) { return Walk(root, path, func(string) {}) }

// Walk is like [ResolveIn], and calls visit with the directory of each symbolic link, and with the
// directory of the end of the path or of the first name that is missing. A change in one of these
// directories may change where the path leads.
func Walk(root, path string, visit func(dir string)) (string, error) {
	resolved, remaining := "/", strings.Split(path, "/")
	for links := 0; len(remaining) > 0; {
		name := remaining[0]
		remaining = remaining[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			resolved = filepath.Dir(resolved)
			continue
		}
		next := filepath.Join(resolved, name)
		info, err := os.Lstat(filepath.Join(root, next))
		isLink := err == nil && info.Mode()&fs.ModeSymlink != 0
		if err != nil || isLink || len(remaining) == 0 {
			visit(filepath.Join(root, resolved))
		}
		if err != nil {
			return "", err
		}
		if !isLink {
			resolved = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			resolved = "/"
		}
		remaining = append(strings.Split(target, "/"), remaining...)
	}
	return filepath.Join(root, resolved), nil
}
