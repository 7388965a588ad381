package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const container = "8f2b9d0e1c3a4b5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5"

// group returns the path of the cgroup of a container of a pod, as the kubelet's cgroupfs driver
// names it.
func group(p sandbox.Pod) string { return "kubepods/burstable/pod" + p.UID + "/" + container }

func TestAPodIsFoundByItsProcesses(t *testing.T) {
	for version, hierarchy := range hierarchies(t) {
		for name, path := range map[string]string{
			"cgroupfs":                     "kubepods/besteffort/pod%s/" + container,
			"cgroupfs of a Guaranteed pod": "kubepods/pod%s/crio-" + container,
			"systemd with containerd":      "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%_.slice/cri-containerd-" + container + ".scope",
			"systemd with CRI-O":           "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod%_.slice/crio-" + container + ".scope",
			"systemd of a Guaranteed pod": "kubepods.slice/kubepods-pod%_.slice/docker-" +
				container + ".scope",
			"kind": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable-pod%_.slice/cri-containerd-" + container + ".scope",
			"process in a child of the container's cgroup": "kubepods/burstable/pod%s/" + container +
				"/init.scope/app",
		} {
			t.Run(version+", "+name, func(t *testing.T) {
				n, p, ns := newNode(t), newPod(), netnstest.New(t)
				path := strings.NewReplacer("%s", p.UID, "%_",
					strings.ReplaceAll(p.UID, "-", "_")).Replace(path)
				pid, stop := n.start(t, ns, cgroup(t, hierarchy, path))
				f := n.finder()
				wantMissing(t, f, newPod(), "proc: the pod has no process")
				for range 2 {
					s := wantFound(t, f, p, ns, sandbox.Proc)
					want := fmt.Sprintf("%s/%d/ns/net", n.proc, pid)
					if s.Path != want || s.ContainerID != "" {
						t.Errorf("found %+v, want path %s and no container", s, want)
					}
				}
				stop()
				wantMissing(t, f, p)
			})
		}
	}
}

// TestPodCannotImpersonateAnother checks that cgroups below a pod's own cgroup have no effect: the
// pod chooses their names.
func TestPodCannotImpersonateAnother(t *testing.T) {
	n, hostile, p, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	n.start(t, ns, cgroup(t, anyHierarchy(t), group(hostile)+"/kubepods/pod"+p.UID))
	f := n.finder()
	wantMissing(t, f, p, "the pod has no process")
	wantFound(t, f, hostile, ns, sandbox.Proc)
}

// TestProcessesInTheNodesNamespaceAreIgnored covers CRI-O's conmon, which is in the pod's cgroup
// and in the node's network namespace, and pods with hostNetwork.
func TestProcessesInTheNodesNamespaceAreIgnored(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	dir := cgroup(t, anyHierarchy(t), group(p))
	n.start(t, nil, dir)
	f := n.finder()
	wantMissing(t, f, p, "it is in the namespace of the node or of this process")
	n.start(t, ns, dir)
	err := netnstest.New(t).Do(func() error { // the finder has its own network namespace
		wantFound(t, f, p, ns, sandbox.Proc)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNamespaceOfOldestProcessIsPreferred(t *testing.T) {
	n, p, ns, second := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
	dir := cgroup(t, anyHierarchy(t), group(p))
	n.start(t, ns, dir)
	n.start(t, second, dir)
	wantFound(t, n.finder(), p, ns, sandbox.Proc)
	// The second namespace takes precedence if the runtime created it.
	path := n.link(t, second, "cni-1")
	s, want := wantFound(t, n.finder(), p, second, sandbox.Proc), filepath.Join(n.netns, "cni-1")
	if s.Path != want {
		t.Errorf("found %+v, want path %s", s, want)
	}
	n.link(t, ns, "cni-0")
	wantFound(t, n.finder(), p, ns, sandbox.Proc)
	n.unlink(t, path)
	wantFound(t, n.finder(), p, ns, sandbox.Proc)
}

func TestNamespaceOfAnotherPodIsRejected(t *testing.T) {
	for _, row := range []struct {
		name   string
		assign func(n *node, f *sandbox.Finder, other sandbox.Pod, ns *netns.NS)
	}{
		{"the other pod has a record with the namespace", func(n *node, _ *sandbox.Finder, other sandbox.Pod, ns *netns.NS) {
			n.record(t, other, "c1", n.link(t, ns, "cni-1"))
		}},
		{"the runtime has created the namespace for the other pod", func(
			n *node, _ *sandbox.Finder, other sandbox.Pod, ns *netns.NS,
		) {
			n.result(t, other, "c1", n.link(t, ns, "cni-1"))
		}},
		{"the other pod was found in the namespace", func(n *node, f *sandbox.Finder, other sandbox.Pod, ns *netns.NS) {
			n.start(t, ns, cgroup(t, anyHierarchy(t), group(other)))
			wantFound(t, f, other, ns, sandbox.Proc)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, hostile, other, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
			f := n.finder()
			row.assign(n, f, other, ns)
			n.start(t, ns, cgroup(t, anyHierarchy(t), group(hostile)))
			wantMissing(t, f, hostile, "it is in the namespace of pod "+other.String())
		})
	}
}

// TestNamespaceOfEndedPodIsAccepted checks that a pod's namespace is found even though the cached
// sandbox of an ended pod has the same ID, because inode numbers are reused.
func TestNamespaceOfEndedPodIsAccepted(t *testing.T) {
	n, ended, p, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	f := n.finder()
	_, stop := n.start(t, ns, cgroup(t, anyHierarchy(t), group(ended)))
	wantFound(t, f, ended, ns, sandbox.Proc)
	stop()
	n.start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
	wantFound(t, f, p, ns, sandbox.Proc)
}

// TestProcPathMustBelongToThePod covers cri-dockerd, which does not bind-mount network namespaces.
func TestProcPathMustBelongToThePod(t *testing.T) {
	n, p, other, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	pid, _ := start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
	n.process(t, 7, pid)
	n.result(t, other, "c2", "/proc/7/ns/net")
	n.result(t, p, "c1", "/proc/7/ns/net")
	f := n.finder()
	if s := wantFound(t, f, p, ns, sandbox.Runtime); s.Path != n.proc+"/7/ns/net" {
		t.Errorf("found %+v, want the path of process 7", s)
	}
	wantMissing(t, f, other, "/proc/7/ns/net belongs to pod "+p.String()+" with UID "+p.UID)
	// Another pod's process in the same namespace reuses the process ID.
	second, _ := start(t, ns, cgroup(t, anyHierarchy(t), group(other)))
	if err := os.Remove(filepath.Join(n.proc, "7")); err != nil {
		t.Fatal(err)
	}
	n.process(t, 7, second)
	wantMissing(t, f, p, "/proc/7/ns/net does not belong to a process of the pod")
}

func TestNothingIsSearchedWithoutTheNodesProc(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
	proc := n.proc
	n.proc = ""
	wantMissing(t, n.finder(), p, "neither a record nor the runtime's cache contains the pod")
	n.proc = filepath.Join(proc, "none")
	wantMissing(t, n.finder(), p, "proc: ", "no such file")
	n.proc = proc
	wantFound(t, n.finder(), p, ns, sandbox.Proc)
}

func TestAMissingPermissionToReadProcessesIsReported(t *testing.T) {
	n, p, recorded, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	n.start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
	n.record(t, recorded, "c1", "/var/run/netns/cni-1")
	prepare := func() error {
		return errors.Join(n.mount(t, ns, "cni-1"),
			netnstest.DropCapabilities(unix.CAP_SYS_PTRACE))
	}
	onThread(t, prepare, func() {
		f := n.finder()
		wantMissing(t, f, p, "needs CAP_SYS_PTRACE")
		wantFound(t, f, recorded, ns, sandbox.Record)
	})
}

// TestAPodIsFoundFromACgroupNamespace covers an agent's container with its own cgroup namespace.
// There the paths of other processes' cgroups begin with /../.
func TestAPodIsFoundFromACgroupNamespace(t *testing.T) {
	hierarchy, ok := hierarchies(t)["version 1"] // where threads can be moved separately
	if !ok {
		t.Skip("no cgroups of version 1")
	}
	n, agent, p, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	own := cgroup(t, hierarchy, group(agent))
	pid, _ := n.start(t, ns, cgroup(t, hierarchy, "kubepods/burstable/pod"+p.UID))
	move := func(group string) error {
		return os.WriteFile(filepath.Join(group, "tasks"), []byte(strconv.Itoa(unix.Gettid())),
			0o644)
	}
	enter := func() error { return errors.Join(move(own), unix.Unshare(unix.CLONE_NEWCGROUP)) }
	onThread(t, enter, func() {
		defer func() {
			// A cgroup cannot be removed while a thread is in it.
			if err := move(hierarchy); err != nil {
				t.Error(err)
			}
		}()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if want := ":pids:/../../pod" + p.UID; err != nil || !strings.Contains(string(text), want) {
			t.Errorf("cgroups %s, error %v; want %s", text, err, want)
		}
		wantFound(t, n.finder(), p, ns, sandbox.Proc)
	})
}

// insideEnv makes TestARealProcIsSearched search, instead of starting itself in new namespaces.
const insideEnv = "SLUICE_TEST_INSIDE"

// TestARealProcIsSearched runs itself as the first process of a node, with a real /proc.
func TestARealProcIsSearched(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		netnstest.RequireRoot(t)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestARealProcIsSearched$", "-test.v")
		cmd.Env = append(os.Environ(), insideEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the test in new namespaces: %v; output:\n%s", err, out)
		}
		return
	}
	for _, err := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n, p, host, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	n.proc = "/proc"
	start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
	start(t, nil, cgroup(t, anyHierarchy(t), group(host)))
	f := n.finder()
	wantFound(t, f, p, ns, sandbox.Proc)
	wantMissing(t, f, host, "the namespace of the node")
}
