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
	Options string // options that select the hierarchy in a mount: cpu,cpuacct
	// own is the cgroup of this process, relative to Mount.
	own string
}

// parseHierarchies parses /proc/self/mountinfo and /proc/self/cgroup.
func parseHierarchies(mountinfo, cgroup io.Reader) ([]hierarchy, error) {
	membership := map[string]string{} // path of the process's cgroup by list of controllers
	for s := bufio.NewScanner(cgroup); s.Scan(); {
		if fields := strings.SplitN(s.Text(), ":", 3); len(fields) == 3 {
			membership[fields[1]] = fields[2]
		}
	}
	var found []hierarchy
	s := bufio.NewScanner(mountinfo)
	for s.Scan() {
		// The format is described in proc_pid_mountinfo(5).
		front, back, _ := strings.Cut(s.Text(), " - ")
		mount, source := strings.Fields(front), strings.Fields(back)
		if len(mount) < 5 || len(source) < 3 || !strings.HasPrefix(source[0], "cgroup") {
			continue
		}
		h := hierarchy{Mount: mount[4], Type: source[0]}
		if h.Type == "cgroup" {
			h.Options = strings.Join(slices.DeleteFunc(strings.Split(source[2], ","), isFlag), ",")
		}
		own, known := membership[h.Options]
		if !known {
			continue
		}
		relative, err := filepath.Rel(mount[3], own)
		if err != nil || strings.HasPrefix(relative, "..") {
			continue
		}
		h.own = filepath.Join(h.Mount, relative)
		found = append(found, h)
	}
	return found, s.Err()
}

// isFlag reports whether a superblock option is a flag, which does not identify a hierarchy.
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

// within moves this process into the cgroup with the name in every hierarchy, calls fn, and moves
// the process back. It creates missing cgroups. Processes that fn starts stay in the cgroups.
func within(hierarchies []hierarchy, name string, fn func() error) (err error) {
	defer func() {
		for _, h := range hierarchies {
			err = errors.Join(err, join(h.own))
		}
	}()
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mount, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		// In cgroup v1, a new cpuset has no processors and memory nodes, and accepts no process
		// without them.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if h.Type != "cgroup" || !strings.Contains(h.Options, "cpuset") {
				break
			}
			value, err := os.ReadFile(filepath.Join(h.Mount, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0)
			}
			if err != nil {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
		if err := join(dir); err != nil {
			return err
		}
	}
	return fn()
}

// join moves this process into a cgroup.
func join(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// removeCgroups removes the cgroups with the name and their descendants. Their processes have ended
// or are ending.
func removeCgroups(hierarchies []hierarchy, name string) error {
	var errs []error
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mount, name)
		err := removeTree(dir)
		// The kernel releases a cgroup shortly after the end of its last process.
		for begin := time.Now(); errors.Is(err, unix.EBUSY) &&
			time.Since(begin) < 5*time.Second; err = removeTree(dir) {
			time.Sleep(10 * time.Millisecond)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes directories, innermost first. It does not remove the files in a cgroup, which
// the kernel removes with the directory.
func removeTree(dir string) error {
	var folders []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	for _, folder := range slices.Backward(folders) {
		if e := unix.Rmdir(folder); e != nil && !errors.Is(e, fs.ErrNotExist) {
			return errors.Join(err, &fs.PathError{Op: "rmdir", Path: folder, Err: e})
		}
	}
	return err
}
