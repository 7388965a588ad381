package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// A namespaced engine runs in an emulated machine without an outside network. It cannot pull from a
// registry. The machine implements the other methods of Engine.
type namespaced struct{ *machine.Machine }

// StartNamespaced starts the engine in software.Docker in an emulated machine, whose directory it
// creates in parent. It does not wait until the engine responds.
func StartNamespaced(ctx context.Context, software *build.Software, parent string) (Engine, error) {
	dir, err := machine.NewDir(parent)
	if err != nil {
		return nil, err
	}
	if err := dir.WriteSystem(hostname, address); err != nil {
		return nil, errors.Join(fmt.Errorf("write the disk of the engine: %w", err), dir.Remove())
	}
	m, err := machine.Start(ctx, software.Node, dir, machineSpec(software))
	if err != nil {
		return nil, err
	}
	return namespaced{m}, nil
}

// machineSpec describes the machine of the engine.
func machineSpec(software *build.Software) machine.Spec {
	const programs = "/software/docker/"
	path := []string{"/software/kind"}
	for _, folder := range build.DockerPath {
		path = append(path, programs+folder)
	}
	s := machine.Spec{
		Hostname: hostname, Addresses: []string{address + "/24", "fd00:88::2/64"},
		Services: []machine.Service{{
			Name: dockerd, Argv: []string{dockerd, "--storage-driver=overlay2"},
		}},
		Binds: map[string]string{
			programs: software.Docker, "/software/kind": software.Kind,
		},
		Env: []string{
			"PATH=" + strings.Join(append(path, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
				"/usr/bin"), ":"),
			"HOME=/root", "KUBECONFIG=/tmp/kubeconfig",
		},
	}
	s.BindHostPrograms()
	return s
}

const (
	// dockerd is the program of the engine, and the name of its service.
	dockerd = "dockerd"
	// hostname and address are the name and the IPv4 address of the machine.
	hostname, address = "docker", "10.88.0.2"
)

// Proc implements Engine.
func (n namespaced) Proc() string { return n.Path("/proc") }

// Logs implements Engine.
func (n namespaced) Logs(dir string) error {
	return os.CopyFS(dir, os.DirFS(filepath.Join(n.Dir(), machine.LogDir)))
}
