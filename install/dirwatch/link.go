package dirwatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is how many links the kernel follows in one path (path_resolution(7)).
const maxLinks = 40

// trails returns the directories through which links lead, each once.
func trails(links []string) []string {
	var dirs []string
	for _, link := range links {
		dirs = append(dirs, trail(link)...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// trail returns the directories a change in which may make a link lead to another file, or to one
// with another content: those of all links on the way and that of the file. Where the way ends
// before, the last is the one in which it could go on.
func trail(link string) []string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(link))
	if err != nil {
		return nil
	}
	w := walk{dir: dir, way: []string{filepath.Base(link)}}
	var dirs []string
	for links := 0; len(w.way) > 0 && links < maxLinks; {
		from := w.dir
		if w.step() {
			dirs, links = append(dirs, from), links+1
		}
	}
	return dirs
}

// A walk is where one stands in a path, and what is still to go.
type walk struct {
	dir string // leads through no link
	way []string
}

// step goes on by one name. It reports whether that depended on what the directory holds under it:
// a link, or the end of the way.
func (w *walk) step() bool {
	name := w.way[0]
	w.way = w.way[1:]
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
		return w.turn(path)
	}
	if err != nil {
		w.way = nil
	}
	if len(w.way) == 0 {
		return true
	}
	w.dir = path
	return false
}

// turn goes where a link leads.
func (w *walk) turn(link string) bool {
	target, err := os.Readlink(link)
	if err != nil {
		w.way = nil
		return true
	}
	if filepath.IsAbs(target) {
		w.dir = "/"
	}
	w.way = append(strings.Split(target, "/"), w.way...)
	return true
}
