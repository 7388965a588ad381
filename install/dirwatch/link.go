package dirwatch

import (
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// linkDirs returns, sorted and without duplicates, the directories in which a change may change the
// target of one of the links or the target's content: the directories of all links on the path, and
// the directory of the file. If the file does not exist, this is the deepest existing directory on
// its path. A link whose directory does not exist is ignored.
func linkDirs(links []string) []string {
	var dirs []string
	for _, link := range links {
		parent, err := filepath.EvalSymlinks(filepath.Dir(link))
		if err != nil {
			continue
		}
		// After an error, the directories before it are known.
		_, _ = file.Walk("/", filepath.Join(parent, filepath.Base(link)), func(dir string) {
			dirs = append(dirs, dir)
		})
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
