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
	// Unknown: the agent cannot determine where the path on the node leads.
	Unknown DirectoryState = "unknown"
)

// Directories contains the states of the managed directories.
type Directories struct {
	Configuration, Binary DirectoryState
	// Why is the reason why a state is Unknown. If both states are Unknown, it is the reason for
	// Binary.
	Why string
}

// Known reports whether neither state is [Unknown].
func (d Directories) Known() bool { return d.Configuration != Unknown && d.Binary != Unknown }

const (
	// remountAfter is the time for which a directory must differ from the node's directory before
	// the agent restarts for new mounts. A directory that was moved may be moved back.
	remountAfter = 2 * time.Second
	// remountAfterNeverSame replaces remountAfter for a directory that this process has never found
	// to be the node's directory. It is longer, because new mounts will probably not help.
	remountAfterNeverSame = 5 * time.Minute
)

// directories tracks whether this process manages the directories that the runtime uses. It is not
// safe for concurrent use.
type directories struct {
	mounts map[string]*mount // by the path on the node
}

// A mount is the state of a mounted directory, or of a file in a mounted directory.
type mount struct {
	root    string    // first known result of mountRoot; empty if unknown
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

// check compares CNIConfDir and CNIBinDir, and the configuration in use and the plugin's executable
// in these directories, with the files at NodeCNIConfDir and NodeCNIBinDir on the node. It also
// compares RunDir with NodeRunDir. It sets Directories and Remount of the status, and adds problems
// to it.
func (d *directories) check(s Settings, status *Status) {
	runtimeRoot, rootErr := "", errors.New("the runtime's root directory is not configured")
	if s.RuntimeRoot != nil {
		runtimeRoot, rootErr = s.RuntimeRoot()
	}
	compare := func(dir, onNode, name string) DirectoryState {
		m := d.mountOf(onNode)
		found, err := m.compare(dir, runtimeRoot, onNode, rootErr)
		m.report(found, status, onNode, true)
		if found == Same && name != "" {
			path := filepath.Join(onNode, name)
			m = d.mountOf(path)
			found, err = compareFile(filepath.Join(dir, name), runtimeRoot, path)
			m.report(found, status, path, false)
		}
		if found == Unknown {
			status.Directories.Why = fmt.Sprint(err)
		}
		return found
	}
	status.Directories.Configuration = compare(s.CNIConfDir, s.NodeCNIConfDir, status.Primary)
	status.Directories.Binary = compare(s.CNIBinDir, s.NodeCNIBinDir, s.Type)
	if s.RunDir == "" {
		return
	}
	m := d.mountOf(s.NodeRunDir)
	found, _ := m.compare(s.RunDir, runtimeRoot, s.NodeRunDir, rootErr)
	if found == Missing {
		found = Replaced // the runtime creates the directory when it starts the container again
	}
	m.report(found, status, s.NodeRunDir, true)
}

// compare returns the state of the directory dir of this process. rootErr is the error if the
// runtime's root directory is unknown. If the root directory is unknown or not accessible, compare
// detects only that dir was moved or removed, by a change of mountRoot.
func (m *mount) compare(dir, runtimeRoot, onNode string, rootErr error) (DirectoryState, error) {
	if rootErr == nil {
		found, err := compareFile(dir, runtimeRoot, onNode)
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

// report adds a problem to the status if the path on the node leads to another directory or file
// than the agent has mounted, or to none. It sets Remount of the status if new mounts are needed,
// but never for a file that was different from the start.
func (m *mount) report(found DirectoryState, status *Status, onNode string, isDir bool) {
	switch found {
	case Missing:
		status.add(newProblem(DirectoryReplaced, true, "%s does not exist on the node, "+
			"and the runtime does not use the directory that is mounted in the agent: "+
			"pods that start now have no redirection, or do not start; "+
			"the agent waits until %[1]s exists", onNode))
		m.since = time.Time{}
	case Replaced:
		if m.since.IsZero() {
			m.since = status.At
		}
		var remedy string
		switch duration := status.At.Sub(m.since); {
		case m.wasSame:
			remedy = "it was moved, replaced or mounted over, and the agent exits soon, " +
				"so that the kubelet restarts the agent with new mounts"
			status.Remount = status.Remount || duration >= remountAfter
		case isDir:
			remedy = fmt.Sprintf("check the settings of the agent's directories; the agent exits "+
				"after %v, so that the kubelet restarts the agent with new mounts", remountAfterNeverSame)
			status.Remount = status.Remount || duration >= remountAfterNeverSame
		default:
			remedy = "unmount what is mounted over it on the node (umount)"
		}
		status.add(newProblem(DirectoryReplaced, true,
			"%s on the node is not the one that is mounted in the agent, and the runtime uses the one "+
				"on the node: pods that start now may have no redirection, or not start; %s", onNode,
			remedy))
	case Same:
		m.wasSame, m.since = true, time.Time{}
	case Unknown:
		m.since = time.Time{}
	}
}

// compareFile compares a file of this process with the file at onNode under the runtime's root
// directory. Unless they are the same, it repeats the comparison, because the file may have been
// replaced between the two calls of stat(2).
func compareFile(path, runtimeRoot, onNode string) (found DirectoryState, err error) {
	for range 3 {
		found, err = compareOnce(path, runtimeRoot, onNode)
		if found == Same {
			break
		}
	}
	return found, err
}

// compareOnce compares the file at path with the file at onNode under the runtime's root directory.
// It returns Same if there is no file at path.
func compareOnce(path, runtimeRoot, onNode string) (DirectoryState, error) {
	here, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Same, nil // another check reports the missing file
	}
	if err != nil {
		return Unknown, err
	}
	target, err := file.ResolveIn(runtimeRoot, onNode)
	if err != nil {
		return missingOrUnknown(runtimeRoot, err)
	}
	there, err := os.Stat(target)
	if err != nil {
		return missingOrUnknown(runtimeRoot, err)
	}
	if !os.SameFile(here, there) {
		return Replaced, nil
	}
	return Same, nil
}

// missingOrUnknown returns Missing if err means that a file does not exist and the runtime's root
// directory is accessible. Otherwise it returns Unknown with the reason.
func missingOrUnknown(runtimeRoot string, err error) (DirectoryState, error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return Unknown, err
	}
	if _, rootErr := os.Stat(filepath.Join(runtimeRoot, "/.")); rootErr != nil {
		return Unknown, rootErr
	}
	return Missing, nil
}

// mountRoot returns the path, in its file system, of the directory that is mounted at dir: the
// field root of proc_pid_mountinfo(5). The path changes when the directory is moved on the node,
// and ends in //deleted after the directory was removed.
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
