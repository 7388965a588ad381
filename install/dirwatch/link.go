package dirwatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is the maximum number of links that the kernel follows in a path (path_resolution(7)).
const maxLinks = 40

// linkDirs returns the results of dirsOfLink for all links, sorted and without duplicates.
func linkDirs(links []string) []string {
	var dirs []string
	for _, link := range links {
		dirs = append(dirs, dirsOfLink(link)...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// dirsOfLink returns the directories in which a change may change the link's target or the target's
// content: the directories of all links on the path, and the directory of the file. If the file
// does not exist, the last directory is the deepest existing one on its path. If the directory of
// the link does not exist, the result is nil.
func dirsOfLink(link string) []string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(link))
	if err != nil {
		return nil
	}
	w := walk{dir: dir, rest: []string{filepath.Base(link)}}
	var dirs []string
	for links := 0; len(w.rest) > 0 && links < maxLinks; {
		dir := w.dir
		if w.step() {
			dirs, links = append(dirs, dir), links+1
		}
	}
	return dirs
}

// A walk is a position in a path.
type walk struct {
	dir  string   // path to the position, without symbolic links
	rest []string // names after the position
}

// step follows one name. It reports whether a change in the directory of the name may change where
// the path leads, because the name is a link, is missing, or is the end of the path.
func (w *walk) step() bool {
	name := w.rest[0]
	w.rest = w.rest[1:]
	switch name {
	case "", ".":
		return false
	case "..":
		w.dir = filepath.Dir(w.dir)
		return false
	}
	path := filepath.Join(w.dir, name)
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		w.follow(path)
		return true
	}
	if err != nil {
		w.rest = nil
	}
	if len(w.rest) == 0 {
		return true
	}
	w.dir = path
	return false
}

// follow follows a link.
func (w *walk) follow(link string) {
	target, err := os.Readlink(link)
	if err != nil {
		w.rest = nil
		return
	}
	if filepath.IsAbs(target) {
		w.dir = "/"
	}
	w.rest = append(strings.Split(target, "/"), w.rest...)
}
