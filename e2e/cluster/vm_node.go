package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
	"github.com/sluice-mesh/sluice/e2e/image"
)

// A vmNode is a node that runs in a virtual machine. host is the machine that runs the control
// plane and qemu.
type vmNode struct {
	host    *machine.Machine
	cluster *Cluster
	name    string
	runtime string
}

// Name implements Node.
func (n *vmNode) Name() string { return n.name }

// Listen implements Node.
func (n *vmNode) Listen(address string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s of %s: %w", address, n.name, errors.ErrUnsupported)
}

// Path implements Node.
func (n *vmNode) Path(string) string { return "" }

// Command implements Node. kubectl runs on the control plane's machine, where it is faster.
func (n *vmNode) Command(ctx context.Context, argv ...string) *exec.Cmd {
	if argv[0] == "kubectl" {
		return n.host.Command(ctx, argv...)
	}
	words := []string{
		"env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
		"CONTAINER_RUNTIME_ENDPOINT=" + runtimeEndpoint(n.runtime),
	}
	for _, word := range argv {
		words = append(words, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	// ProxyCommand=false prevents ssh from opening a new connection, which takes seconds, if the
	// shared connection is missing.
	return n.host.Command(ctx, "ssh", "-o", "ProxyCommand=false", sshHost,
		strings.Join(words, " "))
}

// loadImage copies the image of an archive into CRI-O's storage with skopeo.
func (n *vmNode) loadImage(ctx context.Context, archive string) error {
	ref, err := image.Name(archive)
	if err != nil {
		return err
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	const load = `
		f=$(mktemp); trap 'rm "$f"' EXIT; cat >"$f"
		skopeo copy --quiet "oci-archive:$f" "containers-storage:$1"`
	cmd := n.Command(ctx, "sh", "-e", "-c", load, "sh", ref)
	cmd.Stdin = file
	return withOutput(cmd.CombinedOutput())
}

// bootID returns an identifier that changes with each boot.
func (n *vmNode) bootID(ctx context.Context) (string, error) {
	return run(ctx, n, "cat", "/proc/sys/kernel/random/boot_id")
}

// StopService implements Node.
func (n *vmNode) StopService(ctx context.Context, service string) error {
	if !runsOnVMNode(service) {
		return n.host.StopService(ctx, service)
	}
	_, err := run(ctx, n, "systemctl", "stop", service)
	return err
}

// StartService implements Node.
func (n *vmNode) StartService(ctx context.Context, service string) error {
	if !runsOnVMNode(service) {
		return n.host.StartService(ctx, service)
	}
	_, err := run(ctx, n, "systemctl", "start", "--no-block", service)
	return err
}

// KillService implements Node.
func (n *vmNode) KillService(ctx context.Context, service string) error {
	if !runsOnVMNode(service) {
		return n.host.KillService(ctx, service)
	}
	_, err := run(ctx, n, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", service)
	return err
}

// Reboot implements Node. systemd stops the services before the machine restarts.
func (n *vmNode) Reboot(ctx context.Context) error {
	before, err := n.bootID(ctx)
	if err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	rebootTime := time.Now()
	// The connection may end before the command does.
	if _, err := run(ctx, n, "systemctl", "reboot", "--no-block"); err != nil {
		n.cluster.progress.logf("systemctl reboot: %v", err)
	}
	condition := n.name + " has booted again"
	err = n.cluster.progress.waitUntil(ctx, condition, func(ctx context.Context) error {
		now, err := n.bootID(ctx)
		if err == nil && now == before {
			err = errors.New("the boot ID has not changed")
		}
		return err
	})
	if err == nil {
		err = n.cluster.waitForReadyNode(ctx, n.name, rebootTime)
	}
	if err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	return nil
}

// copyJournal saves the systemd journal of all boots in dir.
func (n *vmNode) copyJournal(dir string) error {
	const timeout = 2 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	journal, err := run(ctx, n, "journalctl", "--no-pager", "--output=short-precise", "--merge")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "journal.log"), []byte(journal), 0o644)
}
