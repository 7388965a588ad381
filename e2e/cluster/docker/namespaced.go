package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	if err := writeDisk(dir.Root()); err != nil {
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
		Hostname: "docker", Addresses: []string{"10.88.0.2/24", "fd00:88::2/64"},
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

// dockerd is the program of the engine, and the name of its service.
const dockerd = "dockerd"

// writeDisk writes the machine's files before it boots.
func writeDisk(root string) error {
	var errs []error
	for _, folder := range []string{"var/lib/docker", "var/log", "var/tmp", "root", "etc"} {
		errs = append(errs, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\ndocker:x:999:\n",
		"resolv.conf": "",
		"hosts":       "127.0.0.1 localhost\n::1 localhost\n10.88.0.2 docker\n",
		"hostname":    "docker\n",
	} {
		errs = append(errs, os.WriteFile(filepath.Join(root, "etc", name), []byte(content), 0o644))
	}
	for target, name := range map[string]string{
		"../run": "var/run", "usr/bin": "bin", "usr/sbin": "sbin",
	} {
		errs = append(errs, os.Symlink(target, filepath.Join(root, name)))
	}
	return errors.Join(append(errs, linkLibraries(root))...)
}

// linkLibraries creates the library directories, with links into /usr. It always creates
// /lib/modules, because kind mounts that directory into every node.
func linkLibraries(root string) error {
	var errs []error
	for _, name := range []string{"lib32", "lib64", "libx32"} {
		if _, err := os.Stat(filepath.Join("/usr", name)); err == nil {
			errs = append(errs, os.Symlink("usr/"+name, filepath.Join(root, name)))
		}
	}
	entries, err := os.ReadDir("/usr/lib")
	errs = append(errs, err, os.Mkdir(filepath.Join(root, "lib"), 0o755))
	for _, entry := range entries {
		errs = append(errs,
			os.Symlink("../usr/lib/"+entry.Name(), filepath.Join(root, "lib", entry.Name())))
	}
	if err := os.Mkdir(filepath.Join(root, "lib/modules"), 0o755); !errors.Is(err, fs.ErrExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Proc implements Engine.
func (n namespaced) Proc() string { return n.Path("/proc") }

// Logs implements Engine.
func (n namespaced) Logs(dir string) error {
	return os.CopyFS(dir, os.DirFS(filepath.Join(n.Dir(), machine.LogDir)))
}
