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

// A Directory says whether the runtime reads the directory that this process keeps.
type Directory string

// What a directory may be. The empty one is that of a status before the first pass.
const (
	Same     Directory = "same"     // the runtime finds it at the path on the node
	Replaced Directory = "replaced" // the runtime finds another one there
	Gone     Directory = "gone"     // there is none on the node
	Unknown  Directory = "unknown"  // what is on the node is not seen from here
)

// Directories say what the directories are that this process keeps.
type Directories struct {
	Configuration, Binary Directory
	// Why says why one is unknown.
	Why string
}

// Known returns whether of both directories it is known what they are.
func (d Directories) Known() bool { return d.Configuration != Unknown && d.Binary != Unknown }

const (
	// remountAfter is how long a directory that was the node's is another one before only a new
	// mount is expected to help: whoever moves directories may be about to move them back.
	remountAfter = 2 * time.Second
	// remountLate is the same for one that was never the node's: then a new mount is unlikely to
	// help, and shall not be made again and again.
	remountLate = 5 * time.Minute
)

// directories follow whether what this process keeps is what the runtime finds at the same paths of
// the node. Not safe for concurrent use.
type directories struct {
	mounts map[string]*mount // by the path on the node
}

// mount is what is known of a directory or a file in one.
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

// check compares the directories, and in them the configuration in use and the plugin, with the
// node's, and adds what is wrong to a status.
func (d *directories) check(s Settings, status *Status) {
	root, hidden := "", errors.New("the node's root directory is not seen from here")
	if s.NodeRoot != nil {
		root, hidden = s.NodeRoot()
	}
	look := func(dir, onNode, name string) Directory {
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
	status.Directories.Configuration = look(s.CNIConfDir, s.NodeCNIConfDir, status.Primary)
	status.Directories.Binary = look(s.CNIBinDir, s.NodeCNIBinDir, s.Type)
}

// compare says what a directory of this process is on the node. Where the node is hidden, only a
// directory that was moved or removed is recognised, by its place in its file system.
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

// judge reports a directory, or else a file in one, that is not the node's.
func (m *mount) judge(found Directory, status *Status, onNode string, whole bool) {
	switch found {
	case Gone:
		status.add(problem(DirectoryGone, true, "%s is not on the node any more, and what the agent was started with is not what a runtime "+
			"finds: pods that start now have no redirection, or do not start; the agent waits until it is there again", onNode))
		m.since = time.Time{}
	case Replaced:
		if m.since.IsZero() {
			m.since = status.At
		}
		status.add(problem(DirectoryGone, true, "%s is not the one any more that the agent was started with: on the node it was moved, replaced or "+
			"mounted over, and the runtime reads what is there now; pods that start now may have no redirection, or not start; "+
			"the agent ends, to be started anew with what is there now", onNode))
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

// sameFile compares a file of this process with what a process with that root directory finds at a
// path. Of one that is being replaced at this moment it takes the second look.
func sameFile(path, root, onNode string) (found Directory, err error) {
	for range 3 {
		found, err = lookTwice(path, root, onNode)
		if found == Same {
			break
		}
	}
	return found, err
}

func lookTwice(path, root, onNode string) (Directory, error) {
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

// absent tells a file that is not on the node from a node that is not seen.
func absent(root string, err error) (Directory, error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return Unknown, err
	}
	if _, rootErr := os.Stat(filepath.Join(root, "/.")); rootErr != nil {
		return Unknown, rootErr
	}
	return Gone, nil
}

// mountRoot returns where the root of the mount at a directory is now in its file system
// (proc_pid_mountinfo(5)). It follows the directory when that is moved on the node, and says so
// when it is removed.
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
