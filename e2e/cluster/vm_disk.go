package cluster

import (
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
	vm "github.com/sluice-mesh/sluice/e2e/kernels/machine"
)

// vmInit is the first program of the initramfs.
//
//go:embed vm_init.sh
var vmInit []byte

// VMPluginDir is the directory of the CNI plugins in a virtual machine, where Debian installs them.
const VMPluginDir = "/usr/lib/cni"

// installVM writes the files of the control plane's machine, including the disk and the initramfs
// of the virtual machine.
func (o Options) installVM(
	ctx context.Context, dir *machine.Dir, s *build.Software, ca *authority,
) error {
	d := &disk{root: dir.Root(), err: dir.WriteSystem(o.Name, nodeIPv4)}
	d.write(vmConnectScript, o.render("vm-connect", nil), 0o755)
	d.write(sshDirectory+"/config", o.render("ssh_config", nil), 0o600)
	if err := d.writeCredentials(o, ca, "127.0.0.1"); err != nil {
		return err
	}
	key := filepath.Join(dir.Root(), sshDirectory, "id_ed25519")
	generate := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	if err := withOutput(generate.CombinedOutput()); err != nil {
		return fmt.Errorf("create the ssh key: %w", err)
	}
	publicKey, err := os.ReadFile(key + ".pub")
	if err != nil {
		return err
	}
	nodeFiles := filepath.Join(dir.Path(), "node-files")
	if err := o.writeNodeFiles(nodeFiles, ca, publicKey); err != nil {
		return err
	}
	copyDisk := exec.CommandContext(ctx, "cp", "--sparse=always",
		filepath.Join(s.VM, build.VMDisk), filepath.Join(dir.Root(), vmDisk))
	return errors.Join(writeInitramfs(filepath.Join(dir.Root(), vmInitramfs), s.VM, nodeFiles),
		withOutput(copyDisk.CombinedOutput()))
}

// writeNodeFiles writes the files that the virtual machine copies to its disk at the first boot.
func (o Options) writeNodeFiles(dir string, ca *authority, publicKey []byte) error {
	d := &disk{root: dir}
	d.renderTree(o, "vm-node")
	d.write("/etc/resolv.conf", nil, 0o644)
	d.write(resolvConf, nil, 0o644)
	d.write("/etc/machine-id", machineID(), 0o444)
	d.write("/root/.ssh/authorized_keys", publicKey, 0o600)
	d.write(ConflistPath, o.conflist(podRangeIPv4), 0o644)
	d.configureRuntime(o)
	// The status is updated less often than on other nodes: the emulated processor is slow.
	d.write(kubeletConfigPath, o.kubelet(o.Runtime, "systemd", "5s"), 0o644)
	d.write(proxyConfigPath, o.render("kube-proxy.yaml", nil), 0o644)
	for _, s := range o.services(gatewayIPv4) {
		if s.Name == Kubelet || s.Name == Proxy {
			d.writeUnit(s, o.Runtime)
		}
	}
	if err := d.writeCredentials(o, ca, gatewayIPv4); err != nil {
		return fmt.Errorf("write the files of the virtual machine: %w", err)
	}
	return nil
}

// unitDir is the directory of locally installed systemd units.
const unitDir = "/etc/systemd/system/"

// configureRuntime configures the container runtime. Debian's package of containerd enables
// containerd; for CRI-O, configureRuntime enables CRI-O and masks containerd.
func (d *disk) configureRuntime(o Options) {
	if o.Runtime != CRIO {
		d.write(containerdConfigPath, o.render("containerd-debian.toml", nil), 0o644)
		return
	}
	d.write("/etc/crio/crio.conf.d/node.conf", o.render("crio.toml", nil), 0o644)
	d.enableUnit(CRIO)
	d.link("/dev/null", unitDir+Containerd+".service")
}

// runtimeEndpoint returns the CRI endpoint of a runtime.
func runtimeEndpoint(runtime string) string {
	return fmt.Sprintf("unix:///run/%[1]s/%[1]s.sock", runtime)
}

// writeUnit writes the unit of a service, and enables it.
func (d *disk) writeUnit(s machine.Service, runtime string) {
	d.write(unitDir+s.Name+".service", fmt.Appendf(nil,
		"[Unit]\nWants=%[1]s.service\nAfter=%[1]s.service\nStartLimitIntervalSec=0\n"+
			"[Service]\nExecStart=/usr/local/bin/%[2]s\nRestart=always\nRestartSec=1\n",
		runtime, strings.Join(s.Argv, " ")), 0o644)
	d.enableUnit(s.Name)
}

// enableUnit makes systemd start a service at boot.
func (d *disk) enableUnit(service string) {
	const wants = unitDir + "multi-user.target.wants"
	if d.err == nil {
		d.err = os.MkdirAll(filepath.Join(d.root, wants), 0o755)
	}
	d.link("../"+service+".service", wants+"/"+service+".service")
}

// writeInitramfs writes the initramfs of the virtual machine.
func writeInitramfs(file, software, nodeFiles string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := vm.NewInitramfs(out)
	a.Bytes("/init", 0o755, vmInit)
	a.Copy("/bin/busybox", 0o755, filepath.Join(software, build.VMBusybox))
	a.Copy("/"+build.VMModule, 0o644, filepath.Join(software, build.VMModule))
	return errors.Join(a.Tree("/files", nodeFiles), a.Close())
}
