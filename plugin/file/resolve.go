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

// ResolveIn resolves an absolute path as a process with the root directory root does, and returns
// the result below root: targets of absolute symbolic links are below root, and ".." does not leave
// it. For a missing path the error wraps [fs.ErrNotExist].
func ResolveIn(root, path string) (string, error) {
	at, variant := "/", strings.Split(path, "/")
	for links := 0; len(variant) > 0; {
		name := variant[0]
		variant = variant[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
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
			at = "/"
		}
		variant = append(strings.Split(target, "/"), variant...)
	}
	return filepath.Join(root, at), nil
}
