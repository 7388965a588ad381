package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// procDir is the path of the node's /proc; empty if it is not available.
type procDir string

// netns returns the path of a process's network namespace.
func (d procDir) netns(pid int) string { return string(d) + "/" + strconv.Itoa(pid) + "/ns/net" }

// firstProcess is the PID of a process that is always in the node's network namespace.
const firstProcess = 1

// namespace returns the identity of the network namespace of a process.
func (d procDir) namespace(pid int) (netns.ID, error) {
	id, err := identify(d.netns(pid))
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (access needs CAP_SYS_PTRACE, and AppArmor must allow it)", err)
	}
	return id, err
}

// maxCgroupBytes is the maximum size of a cgroup file: 16 hierarchies with paths of 1 KiB.
const maxCgroupBytes = 16 << 10

// podOf returns the UID of the pod of a process; empty if there is none, or the process has ended.
// With an error, for example because the cgroup file is too long, the pod is unknown.
func (d procDir) podOf(pid int) (uid string, err error) {
	file := string(d) + "/" + strconv.Itoa(pid) + "/cgroup"
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return "", nil
	case err != nil:
		return "", err
	case len(text) > maxCgroupBytes:
		return "", fmt.Errorf("%s is too long: allowed are %d bytes", file, maxCgroupBytes)
	}
	return podOf(string(text)), nil
}

// startTime returns the start time of a process in ticks since the boot of the node.
func (d procDir) startTime(pid int) (uint64, error) {
	proc, err := procfs.NewFS(string(d))
	if err != nil {
		return 0, err
	}
	process, err := proc.Proc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return stat.Starttime, err
}

// confirms reports whether a process of the pod still has the process ID in the sandbox's path:
// process IDs are reused. It returns true for a sandbox at a path outside /proc, and false if the
// pod of the process is unknown.
func (d procDir) confirms(s Sandbox) bool {
	pid, ok := d.process(s.Path)
	if !ok {
		return true
	}
	uid, err := d.podOf(pid)
	return err == nil && uid == s.Pod.UID
}

// process returns the process ID in a path of the form PID/ns/net below d. It returns false for
// other paths.
func (d procDir) process(path string) (pid int, ok bool) {
	if rest, ok := strings.CutPrefix(path, string(d)+"/"); ok && d != "" {
		return processOf("/proc/" + rest)
	}
	return 0, false
}

// processOf returns the process ID in a path on the node of the form /proc/PID/ns/net. It returns
// false for other paths.
func processOf(path string) (pid int, ok bool) {
	rest, isProc := strings.CutPrefix(path, "/proc/")
	number, isNet := strings.CutSuffix(rest, "/ns/net")
	pid, err := strconv.Atoi(number)
	return pid, isProc && isNet && err == nil && pid > 0 && strconv.Itoa(pid) == number
}

// processes returns the IDs of all processes.
func (d procDir) processes() ([]int, error) {
	names, err := readNames(string(d))
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("%s: no processes: %w", filepath.Clean(string(d)), fs.ErrNotExist)
	}
	return pids, err
}
