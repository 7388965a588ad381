package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
)

// A disk writes files below root, the root directory of a node. After the first error, err is set
// and nothing more is written.
type disk struct {
	root string
	err  error
}

// write creates a file and its directories.
func (d *disk) write(path string, content []byte, mode fs.FileMode) {
	if d.err != nil {
		return
	}
	file := filepath.Join(d.root, path)
	if d.err = os.MkdirAll(filepath.Dir(file), 0o755); d.err == nil {
		d.err = os.WriteFile(file, content, mode)
	}
}

// writeJSON writes a configuration as JSON.
func (d *disk) writeJSON(path string, o object) {
	content, err := encodeJSON(o)
	d.err = errors.Join(d.err, err)
	d.write(path, content, 0o644)
}

// link creates a relative symbolic link, which is also valid outside the node.
func (d *disk) link(target, path string) {
	if d.err == nil {
		d.err = os.Symlink(target, filepath.Join(d.root, path))
	}
}

// copyPrograms copies the programs in a directory of this machine to a directory of the node.
func (d *disk) copyPrograms(from, to string) {
	entries, err := os.ReadDir(from)
	d.err = errors.Join(d.err, err)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(from, entry.Name()))
		d.err = errors.Join(d.err, err)
		d.write(filepath.Join(to, entry.Name()), content, 0o755)
	}
}

// writeSystem writes the files that depend neither on the container runtime nor on Kubernetes.
func (d *disk) writeSystem(o Options) {
	for _, folder := range []string{
		"/var", "/var/tmp", "/var/log", "/var/lib", "/root", "/home", "/mnt", "/srv",
	} {
		if d.err == nil {
			d.err = os.Mkdir(filepath.Join(d.root, folder), 0o755)
		}
	}
	d.link("../run", "/var/run")
	d.link("usr/bin", "/bin")
	d.link("usr/sbin", "/sbin")
	d.linkLibraries()
	d.write("/etc/passwd",
		[]byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"),
		0o644)
	d.write("/etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644)
	d.write("/etc/hostname", []byte(o.Name+"\n"), 0o644)
	d.write("/etc/hosts",
		fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%s %s\n", nodeIPv4, o.Name), 0o644)
	d.write("/etc/resolv.conf", nil, 0o644)
	d.write(resolvConf, nil, 0o644)
	d.write("/etc/machine-id", machineID(), 0o444)
}

// machineID returns an ID in the form of machine-id(5): 32 hexadecimal digits. It is unique among
// the processes of this machine that run clusters.
func machineID() []byte { return fmt.Appendf(nil, "%032x\n", os.Getpid()) }

// install writes all files that the node needs at its first boot, except credentials.
func (d *disk) install(o Options, s *build.Software) error {
	d.writeSystem(o)
	d.writeJSON(ConflistPath, o.conflist(o.addressList(podRangeIPv4, podRangeIPv6)...))
	d.copyPrograms(s.Plugins, "/opt/cni/bin")
	d.write(containerdConfigPath, containerdConfiguration, 0o644)
	d.writeJSON(kubeletConfigPath, o.kubeletConfiguration())
	d.writeJSON(proxyConfigPath, o.proxyConfiguration())
	if d.err != nil {
		return fmt.Errorf("write the node's disk: %w", d.err)
	}
	return nil
}

// linkLibraries creates the links in the root directory to the library directories in /usr. Which
// of them exist depends on the distribution.
func (d *disk) linkLibraries() {
	for _, name := range []string{"lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Stat(filepath.Join("/usr", name)); err == nil {
			d.link("usr/"+name, "/"+name)
		}
	}
}
