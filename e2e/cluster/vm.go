package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// vmStepLimit is the time limit of a step with a virtual machine, whose emulated processor is 10 to
// 20 times slower than the processor of this machine.
const vmStepLimit = 10 * time.Minute

// VMPrograms maps programs that StartVM requires to their Debian packages.
var VMPrograms = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86", "ssh": "openssh-client",
	"ssh-keygen": "openssh-client", "mke2fs": "e2fsprogs", "ip": "iproute2",
}

// StartVM creates a cluster whose only node is a virtual machine with Debian, its kernel and
// systemd. qemu emulates the processor. The control plane runs in namespaces of this machine, as
// with Start, and is the only host that the node can reach. StartVM requires root, amd64 and the
// programs in VMPrograms. Options.DualStack and Options.DNS must be false: the node has only IPv4,
// and CoreDNS is not built for it.
func StartVM(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a cluster with a virtual machine requires root")
	}
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf(
			"architecture %s: a cluster with a virtual machine supports only amd64", runtime.GOARCH)
	}
	o.setDefaults()
	o.Runtime = cmp.Or(o.Runtime, Containerd)
	p := newProgress(o.Name, o.Log)
	p.limit = vmStepLimit
	software, err := build.ForVM(ctx, p, o.Runtime == CRIO)
	if err != nil {
		return nil, err
	}
	return o.start(ctx, p, software, bootVM)
}

// bootVM starts the machine of the control plane, which also runs qemu, and waits until the virtual
// machine has booted.
func bootVM(
	ctx context.Context, o Options, p *progress, software *build.Software,
) (c *Cluster, err error) {
	dir, err := machine.NewDir(o.Dir)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority()
	if err == nil {
		err = o.installVM(ctx, dir, software, ca)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	spec := o.machineSpec(software)
	spec.Hostname, spec.Addresses, spec.Routes = "control-plane", nil, nil
	spec.Binds["/software/vm"] = software.VM
	spec.Services = slices.DeleteFunc(o.services(gatewayIPv4), func(service machine.Service) bool {
		return runsOnVMNode(service.Name)
	})
	spec.Services = append(spec.Services, o.decodeServices("vm-services.yaml", nil)...)
	m, err := machine.Start(ctx, software.Node, dir, spec)
	if err != nil {
		return nil, err
	}
	p.logf("the control plane's machine is booted: process %d, directory %s", m.PID(), m.Dir())
	if c, err = newCluster(p, m, ca); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	n := &vmNode{host: m, cluster: c, name: o.Name, runtime: o.Runtime}
	c.nodes = []Node{n}
	copyLogs := c.copyLogs
	c.copyLogs = func(to string) error { return errors.Join(copyLogs(to), n.copyJournal(to)) }
	err = p.waitUntil(ctx, o.Name+" accepts commands by ssh", func(ctx context.Context) error {
		_, err := n.bootID(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.collectFailed(software.Logs), c.remove())
	}
	return c, nil
}

// runsOnVMNode reports whether a service runs on the node, not on the control plane's machine.
func runsOnVMNode(service string) bool {
	return slices.Contains([]string{Containerd, CRIO, Kubelet, Proxy}, service)
}

// Paths in the control plane's machine. Except for sshDirectory, config/vm-services.yaml contains
// them too.
const (
	vmDisk          = "/vm/disk.img"
	vmInitramfs     = "/vm/initramfs"
	vmConnectScript = "/vm/connect"
	sshDirectory    = "/root/.ssh"
)

// sshHost is the name of the virtual machine in the configuration of ssh.
const sshHost = "node"
