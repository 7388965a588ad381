package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// Start creates a cluster of one node, and returns when the cluster is ready to run pods. Start
// requires root. The first call builds the software, which takes minutes. Call Stop to remove the
// cluster. The cluster is also removed when this process ends.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a cluster requires root")
	}
	o.setDefaults()
	p := newProgress(o.Name, o.Log)
	software, err := build.Build(ctx, p)
	if err != nil {
		return nil, err
	}
	return o.start(ctx, p, software, boot)
}

// setDefaults replaces an empty name and an empty directory with their defaults.
func (o *Options) setDefaults() {
	o.Name, o.Dir = cmp.Or(o.Name, "node"), cmp.Or(o.Dir, os.TempDir())
}

// start boots a cluster, and returns when it is ready. If it does not become ready, start collects
// the logs and removes the cluster.
func (o Options) start(
	ctx context.Context, p *progress, software *build.Software,
	boot func(context.Context, Options, *progress, *build.Software) (*Cluster, error),
) (*Cluster, error) {
	c, err := boot(ctx, o, p, software)
	if err != nil {
		return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
	}
	if err := c.makeReady(ctx, o, software); err != nil {
		err = fmt.Errorf("start cluster %s: %w", o.Name, err)
		return nil, errors.Join(err, c.collectFailed(software.Logs), c.remove())
	}
	return c, nil
}

// boot starts the machine of the node and its services, and returns a cluster that may not be
// ready.
func boot(
	ctx context.Context, o Options, p *progress, software *build.Software,
) (c *Cluster, err error) {
	dir, err := machine.NewDir(o.Dir)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	d := &disk{root: dir.Root()}
	err = errors.Join(dir.WriteSystem(o.Name, nodeIPv4), d.install(o, software),
		d.writeCredentials(o, ca, "127.0.0.1"))
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	m, err := machine.Start(ctx, software.Node, dir, o.machineSpec(software))
	if err != nil {
		return nil, err
	}
	p.logf("the machine is booted: process %d, directory %s", m.PID(), m.Dir())
	c, err = newCluster(p, m, ca)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.nodes = []Node{&localNode{Machine: m, cluster: c, name: o.Name}}
	return c, nil
}

// newCluster returns a cluster whose control plane runs on m. The caller adds the nodes.
func newCluster(p *progress, m *machine.Machine, ca *authority) (*Cluster, error) {
	f, err := forward(func() string {
		return fmt.Sprintf("/proc/%d/ns/net", m.PID())
	}, "127.0.0.1:"+apiPort)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		kubeconfig: filepath.Join(m.Dir(), "kubeconfig"), progress: p,
		copyLogs: func(to string) error {
			return os.CopyFS(to, os.DirFS(filepath.Join(m.Dir(), machine.LogDir)))
		},
		remove: func() error { return errors.Join(f.listener.Close(), m.Close()) },
	}
	kubeconfig, err := ca.administratorKubeconfig(f.address())
	if err == nil {
		err = c.setClients(kubeconfig)
	}
	if err != nil {
		return nil, errors.Join(err, f.listener.Close())
	}
	return c, nil
}

// machineSpec returns the description of the node's machine.
func (o Options) machineSpec(software *build.Software) machine.Spec {
	spec := machine.Spec{
		Hostname: o.Name, Services: o.services(nodeIPv4),
		Binds: map[string]string{
			"/software/kubernetes": software.Kubernetes, "/software/runtime": software.Runtime,
		},
		Addresses: o.addressList(nodeIPv4+"/24", nodeIPv6+"/64"),
		Routes:    o.addressList(serviceRangeIPv4, serviceRangeIPv6),
		Env: []string{
			"PATH=/software/kubernetes:/software/runtime:" +
				"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
			"HOME=/root", "KUBECONFIG=" + adminKubeconfig,
			"CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock",
		},
	}
	spec.BindHostPrograms()
	return spec
}

// administratorKubeconfig returns a kubeconfig of the administrator, with a new certificate, for
// the API server at an address.
func (a *authority) administratorKubeconfig(address string) ([]byte, error) {
	client, err := a.issueClient("kubernetes-admin", "system:masters")
	if err != nil {
		return nil, err
	}
	return a.kubeconfig("https://"+address, client)
}

// setClients writes the kubeconfig, and creates the clients of this process.
func (c *Cluster) setClients(kubeconfig []byte) error {
	err := os.WriteFile(c.kubeconfig, kubeconfig, 0o600)
	if err != nil {
		return err
	}
	if c.config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return err
	}
	c.config.QPS = -1
	c.config.WarningHandler = rest.NoWarnings{}
	c.clients, err = kubernetes.NewForConfig(c.config)
	return err
}
