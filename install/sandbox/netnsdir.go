package sandbox

import (
	"path/filepath"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// netnsDir is the directory where the runtime mounts network namespaces.
type netnsDir struct {
	// path is its path for the finder, onNode its canonical path on the node.
	path, onNode string
}

// localPath returns the finder's path for a path of the node in the directory.
func (d netnsDir) localPath(onNode string) (path string, ok bool) {
	dir, name := filepath.Split(onNode)
	if name == "" || name == ".." || filepath.Clean(dir) != d.onNode {
		return "", false
	}
	return filepath.Join(d.path, name), true
}

// mounted returns the paths of the namespaces in the directory. Files that are not namespaces have
// other identities.
func (d netnsDir) mounted() (map[netns.ID]string, error) {
	names, err := readNames(d.path)
	paths := make(map[netns.ID]string, len(names))
	for _, name := range names {
		path := filepath.Join(d.path, name)
		if id, err := identify(path); err == nil {
			paths[id] = path
		}
	}
	return paths, err
}
