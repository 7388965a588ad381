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
	// Kubernetes has kubelet, kubectl, kubeadm, etcd and what else runs on a node of the control
	// plane; Runtime has containerd and its shim, runc, ctr and crictl; Plugins has the CNI
	// plugins. They are folders of programs that need no library.
	Kubernetes, Runtime, Plugins string
	// Keeper is the program of cmd/node.
	Keeper string
	// Logs is the directory for logs after a failure, which may not exist.
	Logs string
	// Pause and DNS are archives of images: of a pod's sandbox, PauseImage, and of CoreDNS,
	// DNSImage.
	Pause, DNS string
	// Kind is a folder that has kind, and the name of its node image in the file image. Crane is
	// that program. Docker is a folder with a docker, whose programs are in the folders DockerPath
	// of it. NodeRoot is the file system of a node of kind, root's, to be read. Only ForKind tells
	// them.
	Kind, Crane, Docker, NodeRoot string
	// VM is a folder with what a virtual machine boots from, and CRIO one with CRI-O, if the machine
	// has it. Only ForVM tells them.
	VM, CRIO string
}

// Names of the images that are built here.
const (
	PauseImage = "e2e.sluice.test/pause:1"
	DNSImage   = "e2e.sluice.test/coredns:1"
)

// Build returns the software of a node, and builds first what is not there. What was built is kept
// in bin/e2e of the checkout, in a folder for each part and the hash of what it is built from;
// several processes may build at a time. log gets the progress.
func Build(ctx context.Context, log io.Writer) (*Software, error) {
	b, unlock, err := open(ctx, log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &Software{Logs: filepath.Join(b.out, "logs")}
	// Parts that fail soonest are first.
	return s, b.parts(ctx, s, keeper, pause, containers, kubernetes, dns)
}

// open returns a builder, and excludes other processes until unlock is called.
func open(ctx context.Context, log io.Writer) (b *builder, unlock func(), err error) {
	source, err := folder(ctx)
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

// parts builds missing parts, and stores their paths.
func (b *builder) parts(ctx context.Context, s *Software, parts ...part) error {
	for _, p := range parts {
		dir, err := b.part(ctx, p)
		if err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
		p.found(s, dir)
	}
	return nil
}

// folder returns the directory of this package, which contains the modules to build. The process
// may be anywhere in the module e2e.
func folder(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Dir}}",
		"github.com/sluice-mesh/sluice/e2e/cluster/build")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the sources, in %s: %w", list.Dir, explained(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// lock ensures that one process builds at a time.
func (b *builder) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.out, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		fmt.Fprintln(b.log, "software: waits for another process that builds it")
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
	return func() { _ = file.Close() }, nil
}
