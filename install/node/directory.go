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

// A Directory reports whether the runtime reads the directory that this process manages.
type Directory string

// The states of a directory. The empty one is that of a status before the first pass.
const (
	Same     Directory = "same"     // the runtime finds it at the path on the node
	Replaced Directory = "replaced" // the runtime finds another one there
	Gone     Directory = "gone"     // there is none on the node
	Unknown  Directory = "unknown"  // what is on the node is not seen from here
)

// Directories contains the states of the managed directories.
type Directories struct {
	Configuration, Binary Directory
	// Why is the reason why a state is unknown.
	Why string
}

// Known reports whether both states are known.
func (d Directories) Known() bool { return d.Configuration != Unknown && d.Binary != Unknown }

const (
	// remountAfter is the time that a directory must differ from the node's before new mounts are
	// considered necessary, because a moved directory may be moved back.
	remountAfter = 2 * time.Second
	// remountLate is the same for a directory that never was the node's: new mounts will probably
	// not help, and must not be made too often.
	remountLate = 5 * time.Minute
)

// directories tracks whether this process manages the directories that the runtime uses. It is not
// safe for concurrent use.
type directories struct {
	mounts map[string]*mount // by the path on the node
}

// mount contains the known facts about a directory, or a file in one.
type mount struct {
	root  string    // where its root was in its file system at first; empty if that is not known
	same  bool      // it was the node's once
	since time.Time // when it was found to be another one; zero if it is not
}

func (d *directories) of(onNode string) *mount {
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

// check compares the directories, the configuration in use and the plugin with the node's, and adds
// problems to a status.
func (d *directories) check(s Settings, status *Status) {
	root, hidden := "", errors.New("the node's root directory is not seen from here")
	if s.NodeRoot != nil {
		root, hidden = s.NodeRoot()
	}
	compare := func(dir, onNode, name string) Directory {
		m := d.of(onNode)
		found, err := m.compare(dir, root, onNode, hidden)
		m.judge(found, status, onNode, true)
		if found == Same && name != "" {
			path := filepath.Join(onNode, name)
			m = d.of(path)
			found, err = sameFile(filepath.Join(dir, name), root, path)
			m.judge(found, status, path, false)
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
func (m *mount) compare(dir, root, onNode string, hidden error) (Directory, error) {
	if hidden == nil {
		found, err := sameFile(dir, root, onNode)
		if found != Unknown {
			return found, nil
		}
		hidden = err
	}
	now, err := mountRoot(dir)
	if err != nil {
		return Unknown, hidden
	}
	if m.root == "" {
		m.root = now
	}
	if now != m.root {
		return Replaced, nil
	}
	return Unknown, hidden
}

// judge reports a directory, or a file in one, that is not the node's.
func (m *mount) judge(found Directory, status *Status, onNode string, whole bool) {
	switch found {
	case Gone:
		status.add(problem(DirectoryGone, true,
			"%s is not on the node any more, and what the agent was started with is not what a runtime "+
				"finds: pods that start now have no redirection, or do not start; the agent waits until it exists again", onNode))
		m.since = time.Time{}
	case Replaced:
		if m.since.IsZero() {
			m.since = status.At
		}
		status.add(problem(DirectoryGone, true,
			"%s is not the one any more that the agent was started with: on the node it was moved, replaced or "+
				"mounted over, and the runtime reads the new directory; pods that start now may have no redirection, or not start; "+
				"the agent exits, so that kubelet restarts it with the new directory", onNode))
		switch lasts := status.At.Sub(m.since); {
		case m.same:
			status.Remount = status.Remount || lasts >= remountAfter
		case whole:
			status.Remount = status.Remount || lasts >= remountLate
		}
	case Same:
		m.same, m.since = true, time.Time{}
	case Unknown:
		m.since = time.Time{}
	}
}

// sameFile compares a file of this process with the file at a path under a root directory. For a
// file that is being replaced, the second comparison decides.
func sameFile(path, root, onNode string) (found Directory, err error) {
	for range 3 {
		found, err = compareTwice(path, root, onNode)
		if found == Same {
			break
		}
	}
	return found, err
}

func compareTwice(path, root, onNode string) (Directory, error) {
	here, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Same, nil // what is not here is reported as missing
	}
	if err != nil {
		return Unknown, err
	}
	target, err := file.ResolveIn(root, onNode)
	if err != nil {
		return absent(root, err)
	}
	there, err := os.Stat(target)
	if err != nil {
		return absent(root, err)
	}
	if !os.SameFile(here, there) {
		return Replaced, nil
	}
	return Same, nil
}

// absent distinguishes a missing file from an inaccessible node.
func absent(root string, err error) (Directory, error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return Unknown, err
	}
	if _, rootErr := os.Stat(filepath.Join(root, "/.")); rootErr != nil {
		return Unknown, rootErr
	}
	return Gone, nil
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
			root = fields[3] // the last one is on top
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
