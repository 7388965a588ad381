package cluster

import (
	"context"
	_ "embed" // for the configurations and the script
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

// Configurations of the container runtimes, and the first program of the initramfs.
var (
	//go:embed containerd-debian.toml
	debianContainerdConfiguration []byte
	//go:embed crio.toml
	crioConfiguration []byte
	//go:embed vm_init.sh
	vmInit []byte
)

// VMPluginDir is the directory of the CNI plugins in a virtual machine, where Debian installs them.
const VMPluginDir = "/usr/lib/cni"

const (
	// nodeInterface is the tap interface of the control plane's machine that leads to the virtual
	// machine.
	nodeInterface = "tap0"
	// sshHost is the name of the virtual machine in the configuration of ssh.
	sshHost = "node"
)

// installVM writes the files of the control plane's machine, including the disk and the initramfs
// of the virtual machine.
func (o Options) installVM(
	ctx context.Context, dir *machine.Dir, s *build.Software, ca *authority,
) error {
	d := &disk{root: dir.Root(), err: dir.WriteSystem(o.Name, nodeIPv4)}
	d.write(vmConnectScript, fmt.Appendf(nil,
		"#!/bin/sh -e\nip address add %s/24 dev $1\nip link set $1 up\nip route add %s via %s\n",
		gatewayIPv4, podRangeIPv4, nodeIPv4), 0o755)
	d.write(sshDirectory+"/config", fmt.Appendf(nil, `Host %s
	HostName %s
	User root
	StrictHostKeyChecking no
	UserKnownHostsFile /dev/null
	LogLevel ERROR
	ControlPath %s
	ServerAliveInterval 30
	ServerAliveCountMax 10
`, sshHost, nodeIPv4, sshSocket), 0o600)
	if err := d.writeCredentials(o, ca, "127.0.0.1"); err != nil {
		return err
	}
	key := filepath.Join(dir.Root(), sshDirectory, "id_ed25519")
	generate := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	if err := withOutput(generate.CombinedOutput()); err != nil {
		return fmt.Errorf("create the ssh key: %w", err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		return err
	}
	files := filepath.Join(dir.Path(), "node-files")
	if err := o.writeNodeFiles(files, ca, public); err != nil {
		return err
	}
	copyDisk := exec.CommandContext(ctx, "cp", "--sparse=always",
		filepath.Join(s.VM, build.VMDisk), filepath.Join(dir.Root(), vmDisk))
	return errors.Join(writeInitramfs(filepath.Join(dir.Root(), vmInitramfs), s.VM, files),
		withOutput(copyDisk.CombinedOutput()))
}

// writeNodeFiles writes the files that the virtual machine copies to its disk at the first boot.
func (o Options) writeNodeFiles(dir string, ca *authority, sshKey []byte) error {
	d := &disk{root: dir}
	d.write("/etc/hostname", []byte(o.Name+"\n"), 0o644)
	d.write("/etc/hosts",
		fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%s %s\n", nodeIPv4, o.Name), 0o644)
	d.write("/etc/resolv.conf", nil, 0o644)
	d.write(resolvConf, nil, 0o644)
	d.write("/etc/machine-id", machineID(), 0o444)
	d.write("/etc/systemd/network/eth0.network", fmt.Appendf(nil,
		"[Match]\nName=eth0\n[Network]\nAddress=%s/24\nGateway=%s\n"+
			"LinkLocalAddressing=no\nIPv6AcceptRA=no\n",
		nodeIPv4, gatewayIPv4), 0o644)
	// Without this file, udev changes the MAC address of a pod's interface, and CHECK of the plugin
	// bridge fails.
	d.write("/etc/systemd/network/50-veth.link",
		[]byte("[Match]\nOriginalName=veth*\n[Link]\nMACAddressPolicy=none\n"), 0o644)
	d.write("/etc/sysctl.d/kubernetes.conf",
		[]byte("net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n"), 0o644)
	d.write("/etc/modules-load.d/kubernetes.conf", []byte("br_netfilter\noverlay\n"), 0o644)
	d.write("/root/.ssh/authorized_keys", sshKey, 0o600)
	d.write("/etc/ssh/sshd_config.d/e2e.conf",
		[]byte("MaxSessions 100\nUsePAM no\nPermitRootLogin prohibit-password\n"), 0o644)

	d.writeJSON(ConflistPath, o.conflist(podRangeIPv4))
	d.configureRuntime(o.Runtime)
	kubelet := o.kubeletConfiguration()
	kubelet["cgroupDriver"] = "systemd"
	kubelet["containerRuntimeEndpoint"] = runtimeEndpoint(o.Runtime)
	for _, frequency := range []string{"nodeStatusUpdateFrequency", "nodeStatusReportFrequency"} {
		kubelet[frequency] = "5s" // less often than on other nodes: the emulated processor is slow
	}
	d.writeJSON(kubeletConfigPath, kubelet)
	d.writeJSON(proxyConfigPath, o.proxyConfiguration())
	for _, s := range o.services(gatewayIPv4) {
		if s.Name == Kubelet || s.Name == Proxy {
			d.writeUnit(s, o.Runtime)
		}
	}
	d.err = errors.Join(d.err, d.writeCredentials(o, ca, gatewayIPv4))
	if d.err != nil {
		return fmt.Errorf("write the files of the virtual machine: %w", d.err)
	}
	return nil
}

// unitDir is the directory of locally installed systemd units.
const unitDir = "/etc/systemd/system/"

// configureRuntime configures the container runtime, and enables it at boot. Only CRI-O must be
// enabled here, because the Debian package of containerd enables containerd.
func (d *disk) configureRuntime(name string) {
	if name != CRIO {
		d.write(containerdConfigPath, debianContainerdConfiguration, 0o644)
		return
	}
	d.write("/etc/crio/crio.conf.d/node.conf", crioConfiguration, 0o644)
	d.enableUnit(CRIO)
	d.link("/dev/null", unitDir+Containerd+".service") // containerd does not start
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
func writeInitramfs(file, software, files string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := vm.NewInitramfs(out)
	a.Bytes("/init", 0o755, vmInit)
	a.Copy("/bin/busybox", 0o755, filepath.Join(software, build.VMBusybox))
	a.Copy("/"+build.VMModule, 0o644, filepath.Join(software, build.VMModule))
	return errors.Join(a.Tree("/files", files), a.Close())
}
