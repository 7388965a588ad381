package hostrules_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// start starts a process with a name, in a namespace and, unless dir is empty, in a cgroup. flags
// are the clone flags of the process. stop ends the process.
func start(t testing.TB, name string, ns *netns.NS, dir string, flags uintptr) (pid int, stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	program, err := os.Executable()
	if err == nil {
		err = os.Link(program, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), roleVariable+"=wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if dir != "" {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = ns.Do(cmd.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func() {
		if !done {
			done = true
			_ = stdin.(io.Closer).Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return cmd.Process.Pid, stop
}

func TestFindKubelet(t *testing.T) {
	netnstest.RequireRoot(t)
	host, other := netnstest.New(t), netnstest.New(t)
	if _, err := hostrules.FindKubelet("/proc", host.ID()); err == nil ||
		!strings.Contains(err.Error(), "kubelite") {
		t.Errorf("without a kubelet: error %v, want the searched names", err)
	}
	start(t, "kubelet", other, "", 0)
	start(t, "kubelet-proxy", host, "", 0)
	if k, err := hostrules.FindKubelet("/proc", host.ID()); err == nil {
		t.Errorf("found %v, want neither a kubelet in another namespace nor another program", k)
	}
	name := fmt.Sprintf("sluice-test-%d-kubelet", os.Getpid())
	dir, cgroup := netnstest.NewCgroup(t, name)
	pid, stop := start(t, "kubelet", host, dir, 0)
	start(t, "kubelet", host, "", 0) // a younger kubelet
	k, err := hostrules.FindKubelet("/proc", host.ID())
	if err != nil {
		t.Fatal(err)
	}
	if k.PID != pid || k.UID != 0 || k.Cgroup != cgroup || !k.IsCurrent("/proc") {
		t.Errorf("found %+v; want the running process %d in cgroup %+v", k, pid, cgroup)
	}
	moved, cgroup := netnstest.NewCgroup(t, name+"-moved")
	if err := os.WriteFile(filepath.Join(moved, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
		t.Fatal(err)
	}
	if k.IsCurrent("/proc") {
		t.Error("IsCurrent of a kubelet that was moved to another cgroup is true, want false")
	}
	if k, err = hostrules.FindKubelet("/proc", host.ID()); err != nil || k.PID != pid ||
		k.Cgroup.ID != cgroup.ID || !k.IsCurrent("/proc") {
		t.Errorf("after the move: found %+v, error %v; want process %d in cgroup %d", k, err, pid, cgroup.ID)
	}
	stop()
	if k.IsCurrent("/proc") {
		t.Error("IsCurrent of a kubelet that has ended is true, want false")
	}
	// Create the cgroup again, like systemd.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if k, err = hostrules.FindKubelet("/proc", host.ID()); err != nil || k.PID == pid {
		t.Errorf("after the end of the kubelet: found %v, error %v; want the younger kubelet", k, err)
	}
}

// TestAKubeletThatCannotBeExaminedIsAnError checks that an error while the kubelet's cgroup is
// determined is not treated as a kubelet without a cgroup.
func TestAKubeletThatCannotBeExaminedIsAnError(t *testing.T) {
	host := (*netns.NS)(nil).ID()
	for _, row := range []struct {
		name     string
		file     string // a directory in place of this file causes the error
		wantText string // of the error
	}{
		{"the user is unknown", "status", "7/status"},
		{"the cgroup is unknown", "cgroup", "7/cgroup"},
		{"the mounts are unknown", "mountinfo", "7/mountinfo"},
		{"the process has ended", "", "no process"},
	} {
		proc := t.TempDir()
		dir := filepath.Join(proc, "7")
		err := os.MkdirAll(filepath.Join(dir, "ns"), 0o700)
		if err == nil {
			err = os.Symlink("/proc/thread-self/ns/net", filepath.Join(dir, "ns/net"))
		}
		for name, text := range map[string]string{
			"comm": "kubelet\n", "status": "Uid:\t0\t0\t0\t0\n", "cgroup": "0::/kubelet\n",
			"stat": "7 (kubelet) S" + strings.Repeat(" 1", 50),
		} {
			if err == nil && name != row.file && (row.file != "" || name != "status") {
				err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
			}
		}
		if err == nil && row.file != "" {
			err = os.Mkdir(filepath.Join(dir, row.file), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		if k, err := hostrules.FindKubelet(proc, host); err == nil || !strings.Contains(err.Error(), row.wantText) {
			t.Errorf("%s: found %v, error %v; want an error with %q", row.name, k, err, row.wantText)
		}
	}
}

// TestProcessInAPodIsNotTheKubelet covers a pod in the node's network with a process named kubelet.
func TestProcessInAPodIsNotTheKubelet(t *testing.T) {
	netnstest.RequireRoot(t)
	host := netnstest.New(t)
	dir, _ := netnstest.NewCgroup(t, fmt.Sprintf("sluice-test-%d-kubepods.slice", os.Getpid()))
	start(t, "kubelet", host, dir, 0)
	if k, err := hostrules.FindKubelet("/proc", host.ID()); err == nil {
		t.Errorf("found %v, want no process of a pod", k)
	}
}

// TestDoRunsInTheNodesNamespaces checks that Do runs a function in the node's network and cgroup
// namespaces, and that the calling thread stays in its own.
func TestDoRunsInTheNodesNamespaces(t *testing.T) {
	netnstest.RequireRoot(t)
	host := netnstest.New(t)
	name := fmt.Sprintf("sluice-test-%d-node", os.Getpid())
	dir, _ := netnstest.NewCgroup(t, name)
	pid, _ := start(t, "init", host, dir, unix.CLONE_NEWCGROUP)
	proc := t.TempDir()
	if err := os.Symlink(fmt.Sprintf("/proc/%d", pid), filepath.Join(proc, "1")); err != nil {
		t.Fatal(err)
	}
	node := &hostrules.Node{ProcDir: proc}
	ns, err := node.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if ns.ID() != host.ID() {
		t.Errorf("Open: namespace %v, want %v", ns.ID(), host.ID())
	}
	var within []byte
	var in netns.ID
	err = node.Do(func() (err error) {
		in = (*netns.NS)(nil).ID()
		within, err = os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return err
	})
	if err != nil || in != host.ID() || !strings.HasSuffix(string(within), "0::/\n") {
		t.Errorf("error %v; in namespace %v, want %v; the node's cgroup is %q, want the root", err, in,
			host.ID(), within)
	}
	outside, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.HasSuffix(string(outside), "0::/"+name+"\n") {
		t.Errorf("after Do: error %v; the cgroup is %q, want %s", err, outside, name)
	}
	if !node.IsHost(host.ID()) || !node.IsHost((*netns.NS)(nil).ID()) || node.IsHost(netnstest.New(t).ID()) {
		t.Error("IsHost does not recognize exactly the node's and this thread's network namespace")
	}
	node.Close()
	none := &hostrules.Node{ProcDir: t.TempDir()}
	err = none.Do(func() error { t.Error("Do called the function without the namespaces"); return nil })
	if err == nil || none.IsHost(host.ID()) {
		t.Errorf("without the node's /proc: error %v, IsHost %t; want an error and false", err,
			none.IsHost(host.ID()))
	}
	none.Close()
}
