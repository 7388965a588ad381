package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Software contains the paths of a node's programs on this machine.
type Software struct {
	// Kubernetes, Runtime and Plugins are directories with statically linked programs. Kubernetes
	// contains kubelet, kubectl, kubeadm, etcd and the control plane; Runtime contains containerd,
	// its shim, runc, ctr and crictl; Plugins contains the CNI plugins.
	Kubernetes, Runtime, Plugins string
	// Node is the program cmd/node.
	Node string
	// Logs is the directory to which logs are copied after a failure. It may not exist.
	Logs string
	// Pause is the archive of pauseImage, the image of pods' sandboxes. DNS is the archive of
	// dnsImage, which contains CoreDNS.
	Pause, DNS string
	// Only ForKind sets Kind, Docker and NodeRoot. Kind is a directory with the program kind and
	// the file image, which contains the name of kind's default node image. Docker is a directory
	// with Docker, whose programs are in the subdirectories of DockerPath. NodeRoot is the root
	// directory of a kind node's file system; its files must not be changed.
	Kind, Docker, NodeRoot string
	// Only ForVM sets VM and CRIO. VM is a directory with the boot files of a virtual machine. CRIO
	// is a directory with CRI-O, if the machine uses it.
	VM, CRIO string
}

// Names of the images that this package builds.
const (
	pauseImage = "e2e.sluice.test/pause:1"
	dnsImage   = "e2e.sluice.test/coredns:1"
)

// Build returns the software of a node, after building missing components. Components are cached in
// bin/e2e of the checkout, in directories named after the component and a hash of its inputs. Build
// is safe for concurrent use by several processes. It writes its progress to log.
func Build(ctx context.Context, log io.Writer) (*Software, error) {
	// The components that take the least time are first, so that errors appear early.
	return buildSoftware(ctx, log, nodeProgram, pause, containers, kubernetes, dns)
}

// buildSoftware builds missing components, and returns the paths of the given components.
func buildSoftware(
	ctx context.Context, log io.Writer, components ...component,
) (*Software, error) {
	b, unlock, err := newBuilder(ctx, log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &Software{Logs: filepath.Join(b.out, "logs")}
	return s, b.buildAll(ctx, s, components...)
}

// newBuilder returns a builder. Other processes cannot build until unlock is called.
func newBuilder(ctx context.Context, log io.Writer) (b *builder, unlock func(), err error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return nil, nil, err
	}
	b = &builder{source: source, out: filepath.Join(source, "../../../bin/e2e"), log: log}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, nil, err
	}
	unlock, err = b.lock()
	return b, unlock, err
}

// buildAll builds missing components, and stores their directories in s.
func (b *builder) buildAll(ctx context.Context, s *Software, components ...component) error {
	for _, c := range components {
		dir, err := b.build(ctx, c)
		if err != nil {
			return fmt.Errorf("build %s: %w", c.name, err)
		}
		c.set(s, dir)
	}
	return nil
}

// sourceDir returns the directory of this package, which contains the modules to build. The working
// directory must be in the module e2e.
func sourceDir(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Dir}}",
		"github.com/sluice-mesh/sluice/e2e/cluster/build")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the directory of package build: %w", withStderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// lock waits until no other process builds, and keeps other processes from building until unlock is
// called.
func (b *builder) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.out, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		fmt.Fprintln(b.log, "software: waiting for another process to build it")
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
	return func() { _ = file.Close() }, nil
}
