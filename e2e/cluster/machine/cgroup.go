package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A hierarchy is a mounted cgroup hierarchy of the host. Cgroup v2 has one hierarchy, cgroup v1 has
// several.
type hierarchy struct {
	Mount   string // mount point
	Type    string // cgroup or cgroup2
	Options string // mount options that select the hierarchy, such as cpu,cpuacct
	// processCgroup is the directory of this process's cgroup.
	processCgroup string
}

// parseHierarchies returns the hierarchies in the contents of /proc/self/mountinfo and
// /proc/self/cgroup. It ignores a hierarchy whose mount does not contain the process's cgroup.
func parseHierarchies(mountinfo, cgroup io.Reader) ([]hierarchy, error) {
	paths := map[string]string{} // paths of the process's cgroups by list of controllers
	for s := bufio.NewScanner(cgroup); s.Scan(); {
		// Hierarchy ID, list of controllers, path.
		if fields := strings.SplitN(s.Text(), ":", 3); len(fields) == 3 {
			paths[fields[1]] = fields[2]
		}
	}
	var found []hierarchy
	s := bufio.NewScanner(mountinfo)
	for s.Scan() {
		// proc_pid_mountinfo(5):
		// ID, parent, device, root, mount point, ... - type, source, superblock options.
		front, back, _ := strings.Cut(s.Text(), " - ")
		mount, superblock := strings.Fields(front), strings.Fields(back)
		if len(mount) < 5 || len(superblock) < 3 || !strings.HasPrefix(superblock[0], "cgroup") {
			continue
		}
		root, fsType, options := mount[3], superblock[0], strings.Split(superblock[2], ",")
		h := hierarchy{Mount: mount[4], Type: fsType}
		if fsType == "cgroup" {
			h.Options = strings.Join(slices.DeleteFunc(options, isFlag), ",")
		}
		path, isMember := paths[h.Options]
		if !isMember {
			continue
		}
		relative, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(relative, "..") {
			continue
		}
		h.processCgroup = filepath.Join(h.Mount, relative)
		found = append(found, h)
	}
	return found, s.Err()
}

// isFlag reports whether a superblock option is a flag or release_agent, which do not identify a
// hierarchy.
func isFlag(option string) bool {
	return slices.Contains([]string{"rw", "ro", "clone_children", "xattr", "noprefix"}, option) ||
		strings.HasPrefix(option, "release_agent=")
}

// mountedHierarchies returns the hierarchies that this process sees.
func mountedHierarchies() ([]hierarchy, error) {
	mountinfo, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mountinfo.Close() }()
	cgroup, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer func() { _ = cgroup.Close() }()
	return parseHierarchies(mountinfo, cgroup)
}

// inCgroups moves this process into the cgroup name below the mount point of each hierarchy, calls
// fn, and moves this process back. It creates missing cgroups. Processes that fn starts stay in the
// cgroups.
func inCgroups(hierarchies []hierarchy, name string, fn func() error) (err error) {
	defer func() {
		for _, h := range hierarchies {
			err = errors.Join(err, joinCgroup(h.processCgroup))
		}
	}()
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mount, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create a cgroup: %w", err)
		}
		if h.Type == "cgroup" && strings.Contains(h.Options, "cpuset") {
			if err := copyCpuset(h.Mount, dir); err != nil {
				return fmt.Errorf("initialize the cpuset: %w", err)
			}
		}
		if err := joinCgroup(dir); err != nil {
			return err
		}
	}
	return fn()
}

// copyCpuset copies the processors and memory nodes of the cgroup from to the cgroup to. In cgroup
// v1, a new cpuset has no processors and memory nodes, and therefore accepts no process.
func copyCpuset(from, to string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// joinCgroup moves this process into a cgroup.
func joinCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// removeCgroups removes the cgroups with the name and their descendants. Their processes must have
// ended or be ending.
func removeCgroups(hierarchies []hierarchy, name string) error {
	const retryTime, retryInterval = 5 * time.Second, 10 * time.Millisecond
	var errs []error
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mount, name)
		err := removeTree(dir)
		// The kernel releases a cgroup shortly after the end of its last process.
		for begin := time.Now(); errors.Is(err, unix.EBUSY) &&
			time.Since(begin) < retryTime; err = removeTree(dir) {
			time.Sleep(retryInterval)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup's directory and the directories below it, innermost first. It does
// not remove files, which the kernel removes with their cgroup.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	for _, d := range slices.Backward(dirs) {
		if e := unix.Rmdir(d); e != nil && !errors.Is(e, fs.ErrNotExist) {
			return errors.Join(err, &fs.PathError{Op: "rmdir", Path: d, Err: e})
		}
	}
	return err
}
