package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A DirectoryState states whether the runtime reads the directory that this process manages.
type DirectoryState string

// The states of a directory. The state is empty before the first reconciliation.
const (
	// Same: the path on the node leads to the directory that is mounted in the agent.
	Same DirectoryState = "same"
	// Replaced: the path on the node leads to another directory.
	Replaced DirectoryState = "replaced"
	// Missing: the path on the node does not exist.
	Missing DirectoryState = "missing"
	// Unknown: the agent cannot access the path on the node.
	Unknown DirectoryState = "unknown"
)

// Directories contains the states of the managed directories.
type Directories struct {
	Configuration, Binary DirectoryState
	// Why is the reason if a state is unknown.
	Why string
}

// Known reports whether both states are known.
func (d Directories) Known() bool { return d.Configuration != Unknown && d.Binary != Unknown }

const (
	// remountAfter is the time for which a directory must differ from the node's directory before
	// the agent restarts for new mounts. A directory that was moved may be moved back.
	remountAfter = 2 * time.Second
	// remountAfterFailure replaces remountAfter for a directory that never was the node's
	// directory. It is longer, because new mounts will probably not help.
	remountAfterFailure = 5 * time.Minute
)

// directories tracks whether this process manages the directories that the runtime uses. It is not
// safe for concurrent use.
type directories struct {
	mounts map[string]*mount // by the path on the node
}

// A mount is the state of a mounted directory, or of a file in a mounted directory.
type mount struct {
	root    string    // first known path of the mount's root in its file system; empty if unknown
	wasSame bool      // the state was Same at some time
	since   time.Time // time when the state became Replaced; zero in other states
}

// mountOf returns the mount for a path on the node.
func (d *directories) mountOf(onNode string) *mount {
	if d.mounts == nil {
		d.mounts = map[string]*mount{}
	}
	m := d.mounts[onNode]
	if m == nil {
		m = &mount{}
		d.mounts[onNode] = m
	}
	return m
}

// check compares the agent's directories, the configuration in use and the plugin with the files at
// the same paths on the node, and adds problems to a status.
func (d *directories) check(s Settings, status *Status) {
	root, rootErr := "", errors.New("the runtime's root directory is not configured")
	if s.RuntimeRoot != nil {
		root, rootErr = s.RuntimeRoot()
	}
	compare := func(dir, onNode, name string) DirectoryState {
		m := d.mountOf(onNode)
		found, err := m.compare(dir, root, onNode, rootErr)
		m.report(found, status, onNode, true)
		if found == Same && name != "" {
			path := filepath.Join(onNode, name)
			m = d.mountOf(path)
			found, err = compareFile(filepath.Join(dir, name), root, path)
			m.report(found, status, path, false)
		}
		if found == Unknown {
			status.Directories.Why = fmt.Sprint(err)
		}
		return found
	}
	status.Directories.Configuration = compare(s.CNIConfDir, s.NodeCNIConfDir, status.Primary)
	status.Directories.Binary = compare(s.CNIBinDir, s.NodeCNIBinDir, s.Type)
}

// compare returns the state of a directory of this process. If the node's root is not accessible,
// only a moved or removed directory is detected, by its path in its file system.
func (m *mount) compare(dir, root, onNode string, rootErr error) (DirectoryState, error) {
	if rootErr == nil {
		found, err := compareFile(dir, root, onNode)
		if found != Unknown {
			return found, nil
		}
		rootErr = err
	}
	current, err := mountRoot(dir)
	if err != nil {
		return Unknown, rootErr
	}
	if m.root == "" {
		m.root = current
	}
	if current != m.root {
		return Replaced, nil
	}
	return Unknown, rootErr
}

// report adds a problem if a directory, or a file in a directory, is not the node's, and decides
// whether new mounts are needed.
func (m *mount) report(found DirectoryState, status *Status, onNode string, isDir bool) {
	switch found {
	case Missing:
		status.add(newProblem(DirectoryReplaced, true, "%s no longer exists on the node, "+
			"and the runtime does not use the directory that is mounted in the agent: "+
			"pods that start now have no redirection, or do not start; "+
			"the agent waits until it exists again", onNode))
		m.since = time.Time{}
	case Replaced:
		if m.since.IsZero() {
			m.since = status.At
		}
		status.add(newProblem(DirectoryReplaced, true,
			"%s is no longer the one that is mounted in the agent: "+
				"on the node it was moved, replaced or mounted over, and the runtime uses the new one; "+
				"pods that start now may have no redirection, or not start; "+
				"the agent exits, so that the kubelet restarts it with new mounts", onNode))
		switch duration := status.At.Sub(m.since); {
		case m.wasSame:
			status.Remount = status.Remount || duration >= remountAfter
		case isDir:
			status.Remount = status.Remount || duration >= remountAfterFailure
		}
	case Same:
		m.wasSame, m.since = true, time.Time{}
	case Unknown:
		m.since = time.Time{}
	}
}

// compareFile compares a file of this process with the file at a path under a root directory. It
// repeats the comparison of different files, because the file may be replaced in between.
func compareFile(path, root, onNode string) (found DirectoryState, err error) {
	for range 3 {
		found, err = compareOnce(path, root, onNode)
		if found == Same {
			break
		}
	}
	return found, err
}

// compareOnce compares the file at path with the file at onNode under root once.
func compareOnce(path, root, onNode string) (DirectoryState, error) {
	here, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Same, nil // another check reports the missing file
	}
	if err != nil {
		return Unknown, err
	}
	target, err := file.ResolveIn(root, onNode)
	if err != nil {
		return missingOrUnknown(root, err)
	}
	there, err := os.Stat(target)
	if err != nil {
		return missingOrUnknown(root, err)
	}
	if !os.SameFile(here, there) {
		return Replaced, nil
	}
	return Same, nil
}

// missingOrUnknown returns Missing if the error means that the file does not exist, and Unknown if
// the node's root is not accessible.
func missingOrUnknown(root string, err error) (DirectoryState, error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return Unknown, err
	}
	if _, rootErr := os.Stat(filepath.Join(root, "/.")); rootErr != nil {
		return Unknown, rootErr
	}
	return Missing, nil
}

// mountRoot returns the current path, in its file system, of the root of the mount at a directory
// (proc_pid_mountinfo(5)). It changes when the directory is moved on the node, and shows that it
// was removed.
func mountRoot(dir string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from
	root, lines := "", bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == dir {
			root = fields[3] // the last mount is on top
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	if root == "" {
		return "", &fs.PathError{Op: "find the mount of", Path: dir, Err: fs.ErrNotExist}
	}
	return root, nil
}
