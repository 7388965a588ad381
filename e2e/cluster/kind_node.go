package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// A kindNode is a container of an engine in which systemd runs containerd and the kubelet.
type kindNode struct {
	cluster *kindCluster
	name    string

	mu  sync.Mutex
	pid int // process ID of systemd in the engine's PID namespace
}

// Name implements Node.
func (n *kindNode) Name() string { return n.name }

// findProcess asks the engine for the process ID of the node's systemd, and stores it.
func (n *kindNode) findProcess(ctx context.Context) error {
	out, err := n.cluster.engine.Command(ctx, "docker", "inspect", "--format={{.State.Pid}}",
		n.name).Output()
	if err != nil {
		return fmt.Errorf("find node %s: %w", n.name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || pid == 0 {
		return fmt.Errorf("find node %s: docker inspect printed %q, want a process ID", n.name, out)
	}
	if _, err := os.Stat(docker.ProcessDir(n.cluster.engine, pid)); err != nil {
		return fmt.Errorf("find node %s: docker runs on a different machine than this process: %w",
			n.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pid = pid
	return nil
}

// processDir returns the /proc directory of the node's systemd.
func (n *kindNode) processDir() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return docker.ProcessDir(n.cluster.engine, n.pid)
}

// Path implements Node.
func (n *kindNode) Path(file string) string { return filepath.Join(n.processDir(), "root", file) }

// Listen implements Node.
func (n *kindNode) Listen(address string) (net.Listener, error) {
	return listen(filepath.Join(n.processDir(), "ns/net"), address)
}

// Command implements Node. It does not use docker exec, because the engine cannot kill a
// process that docker exec started.
func (n *kindNode) Command(ctx context.Context, argv ...string) *exec.Cmd {
	var args []string
	for flag, ns := range map[string]string{
		"mount": "mnt", "uts": "uts", "ipc": "ipc", "net": "net", "pid": "pid", "cgroup": "cgroup",
	} {
		args = append(args, "--"+flag+"="+filepath.Join(n.processDir(), "ns", ns))
	}
	args = append(args, "--wd="+n.Path("/"), "--", "/usr/bin/setpriv", "--pdeathsig", "KILL")
	cmd := exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "KUBECONFIG=" + adminKubeconfig,
		"CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock",
	}
	return cmd
}

// Reboot implements Node.
func (n *kindNode) Reboot(ctx context.Context) error {
	rebootTime := time.Now()
	restart := n.cluster.engine.Command(ctx, "docker", "restart", "--time=0", n.name)
	if err := withOutput(restart.CombinedOutput()); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	if err := n.findProcess(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	n.cluster.progress.logf("node %s reboots", n.name)
	if err := n.cluster.waitForReadyNode(ctx, n.name, rebootTime); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	if err := n.cluster.addRoutes(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	return nil
}
