package node

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// checkMayExecute returns an error if the plugin's executable is on a file system that is mounted
// with the option noexec. A runtime cannot run such a plugin: containerd starts no pod, and CRI-O
// does not use a configuration that names the plugin. The error wraps [fs.ErrPermission].
//
// checkMayExecute reads the options of the runtime's mount or, if the runtime's root directory is
// unknown, of the agent's mount. The agent's mount has the options that the node's mount had when
// the agent's container was created.
func checkMayExecute(s Settings) error {
	path := filepath.Join(s.CNIBinDir, s.Type)
	if s.RuntimeRoot != nil {
		if root, err := s.RuntimeRoot(); err == nil {
			onNode := filepath.Join(s.NodeCNIBinDir, s.Type)
			if resolved, err := file.ResolveIn(root, onNode); err == nil {
				path = resolved
			}
		}
	}
	var mount unix.Statfs_t
	if unix.Statfs(path, &mount) != nil {
		return nil // other checks report a missing or inaccessible file
	}
	if mount.Flags&unix.ST_NOEXEC == 0 {
		return nil
	}
	return fmt.Errorf("%s is on a file system that is mounted with the option noexec, so the runtime "+
		"cannot run the plugin: remount it with exec, or set cniBinDir to the runtime's plugin directory: %w",
		filepath.Join(s.CNIBinDir, s.Type), fs.ErrPermission)
}
