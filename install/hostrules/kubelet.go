package hostrules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Kubelet is the process that sends the node's probes.
type Kubelet struct {
	// PID is the id of the process in the searched /proc.
	PID int
	// Started is the start time of the process in clock ticks since boot.
	Started uint64
	// UID is the real user of the process.
	UID uint32
	// Cgroup is the process's cgroup of version 2. It is the zero value if the process has no such
	// cgroup, or one that rules cannot match.
	Cgroup rules.MatchCgroup

	cgroupPath string // as in the file cgroup of the process; empty without a cgroup of version 2
	cgroupDir  string // directory of Cgroup; empty if Cgroup is the zero value
}

// String describes the kubelet.
func (k Kubelet) String() string {
	if k.Cgroup.ID == 0 {
		return fmt.Sprintf("process %d of user %d, without a cgroup that rules can match",
			k.PID, k.UID)
	}
	return fmt.Sprintf("process %d in cgroup %s", k.PID, k.Cgroup.Path)
}

// kubeletNames returns the names of processes that contain the kubelet: kubelet, and the names of
// the single processes of MicroK8s and K3s. RKE2, k0s and Talos start a process named kubelet.
func kubeletNames() []string { return []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"} }

// errNoKubelet is the error of FindKubelet if it finds no kubelet.
var errNoKubelet = errors.New("no process in the node's network namespace and outside pods " +
	"has one of the names " + strings.Join(kubeletNames(), ", "))

// FindKubelet returns the kubelet in a mounted /proc: the oldest process with one of kubeletNames
// that is in the network namespace host and not in a pod. The calling thread must be in the node's
// cgroup namespace. If a process that may be the kubelet cannot be examined, FindKubelet returns
// the error.
func FindKubelet(procDir string, host netns.ID) (Kubelet, error) {
	var processes procfs.Procs
	proc, err := procfs.NewFS(procDir)
	if err == nil {
		processes, err = proc.AllProcs()
	}
	if err != nil {
		return Kubelet{}, fmt.Errorf("search for the kubelet: %w", err)
	}
	var found *Kubelet
	for _, p := range processes {
		k, ok, err := candidate(procDir, p, host)
		if err != nil {
			return Kubelet{}, fmt.Errorf("search for the kubelet: %w", err)
		}
		if ok && (found == nil || k.Started < found.Started) {
			found = &k
		}
	}
	if found == nil {
		return Kubelet{}, errNoKubelet
	}
	return *found, nil
}

// candidate returns the process if it may be the kubelet. It returns false for other processes, and
// for a process that ends meanwhile.
func candidate(procDir string, p procfs.Proc, host netns.ID) (k Kubelet, ok bool, err error) {
	name, err := p.Comm()
	if err != nil || !slices.Contains(kubeletNames(), name) {
		return Kubelet{}, false, nil
	}
	dir := filepath.Join(procDir, strconv.Itoa(p.PID))
	var ns unix.Stat_t
	if unix.Stat(filepath.Join(dir, "ns/net"), &ns) != nil || ns.Ino != host.Ino ||
		ns.Dev != host.Dev {
		return Kubelet{}, false, nil
	}
	k = Kubelet{PID: p.PID}
	isInPod, err := k.examine(p, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Kubelet{}, false, nil // the process has ended
	}
	return k, !isInPod && err == nil, err
}

// examine sets the fields after PID, and reports whether the process is in a pod. If it is, or if
// examine returns an error, the fields may be incomplete. dir is the directory of the process in
// /proc.
func (k *Kubelet) examine(p procfs.Proc, dir string) (isInPod bool, err error) {
	stat, err := p.Stat()
	if err != nil {
		return false, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return false, err
	}
	cgroups, err := p.Cgroups()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(cgroups, func(c procfs.Cgroup) bool {
		return strings.Contains(c.Path, "kubepods")
	}) {
		return true, nil
	}
	k.Started, k.UID, k.cgroupPath = stat.Starttime, uint32(status.UIDs[0]), cgroup2Path(cgroups)
	return false, k.setCgroup(dir)
}

// setCgroup sets Cgroup from cgroupPath, unless rules cannot match the cgroup or its directory does
// not exist. dir is the directory of the process in /proc.
func (k *Kubelet) setCgroup(dir string) error {
	m := rules.CgroupOf(k.cgroupPath)
	// Rules can match neither the root nor a cgroup outside the cgroup namespace, whose path begins
	// with "..".
	if m.Level == 0 || strings.HasPrefix(m.Path, "..") {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || fields[3] != "/" || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		path := filepath.Join(dir, "root", fields[4], m.Path)
		var s unix.Stat_t
		switch err := unix.Stat(path, &s); {
		case err == nil:
			m.ID = s.Ino
			k.Cgroup, k.cgroupDir = m, path
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return nil
}

// IsCurrent reports whether the process still runs, is still in the same cgroup, and the cgroup
// still has the same id. The calling thread must be in the node's cgroup namespace, as for
// [FindKubelet], because the paths of cgroups depend on it.
func (k Kubelet) IsCurrent(procDir string) bool {
	proc, err := procfs.NewFS(procDir)
	if err != nil {
		return false
	}
	p, err := proc.Proc(k.PID)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	if err != nil || stat.Starttime != k.Started {
		return false
	}
	cgroups, err := p.Cgroups()
	if err != nil || cgroup2Path(cgroups) != k.cgroupPath {
		return false
	}
	if k.cgroupDir == "" {
		return true
	}
	var s unix.Stat_t
	return unix.Stat(k.cgroupDir, &s) == nil && s.Ino == k.Cgroup.ID
}

// cgroup2Path returns the path of the cgroup of version 2, whose hierarchy has the ID 0
// (cgroups(7)), or "" if there is none.
func cgroup2Path(cgroups []procfs.Cgroup) string {
	for _, c := range cgroups {
		if c.HierarchyID == 0 {
			return c.Path
		}
	}
	return ""
}
