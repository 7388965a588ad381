package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// renderTree writes the configurations below a directory of config to the same paths of the disk.
func (d *disk) renderTree(o Options, dir string) {
	err := fs.WalkDir(configFiles, "config/"+dir, func(
		file string, entry fs.DirEntry, err error,
	) error {
		if err == nil && !entry.IsDir() {
			file = strings.TrimPrefix(file, "config/")
			d.write(strings.TrimPrefix(file, dir), o.render(file, nil), 0o644)
		}
		return err
	})
	d.err = errors.Join(d.err, err)
}

// link creates a symbolic link. A relative target is also valid outside the node.
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

// machineID returns an ID in the form of machine-id(5): 32 hexadecimal digits. It is unique among
// the processes of this machine that run clusters.
func machineID() []byte { return fmt.Appendf(nil, "%032x\n", os.Getpid()) }

// install writes the files that a local node needs at its first boot, except credentials and the
// files that [machine.Dir.WriteSystem] writes.
func (d *disk) install(o Options, s *build.Software) error {
	d.write(resolvConf, nil, 0o644)
	d.write("/etc/machine-id", machineID(), 0o444)
	d.write(ConflistPath, o.conflist(o.addressList(podRangeIPv4, podRangeIPv6)...), 0o644)
	d.copyPrograms(s.Plugins, "/opt/cni/bin")
	d.write(containerdConfigPath, o.render("containerd.toml", nil), 0o644)
	d.write(kubeletConfigPath, o.kubelet(Containerd, "cgroupfs", "1s"), 0o644)
	d.write(proxyConfigPath, o.render("kube-proxy.yaml", nil), 0o644)
	if d.err != nil {
		return fmt.Errorf("write the node's disk: %w", d.err)
	}
	return nil
}
