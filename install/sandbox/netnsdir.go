package sandbox

import (
	"path/filepath"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// netnsDir is the directory where the runtime mounts network namespaces.
type netnsDir struct {
	path   string // for this process
	onNode string // canonical path on the node
}

// localPath converts the path of a file on the node to its path for this process. It returns false
// if the file is not in the directory.
func (d netnsDir) localPath(onNode string) (path string, ok bool) {
	dir, name := filepath.Split(onNode)
	if name == "" || name == ".." || filepath.Clean(dir) != d.onNode {
		return "", false
	}
	return filepath.Join(d.path, name), true
}

// pathsByID returns the paths of the files in the directory by their identities. Files that are not
// network namespaces do no harm, because no network namespace has their identity.
func (d netnsDir) pathsByID() (map[netns.ID]string, error) {
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
