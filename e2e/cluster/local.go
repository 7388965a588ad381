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

// Start makes a cluster of one node, and returns when it is ready to run pods. It needs root. The
// first time it builds the software, which takes minutes. Stop it; when this process ends in
// another way the cluster ends with it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster of namespaces needs root")
	}
	o.setDefaults()
	s := newSteps(o.Name, o.Log)
	software, err := build.Build(ctx, s)
	if err != nil {
		return nil, err
	}
	return o.start(ctx, s, software, boot)
}

// setDefaults sets the name and the directory if they are empty.
func (o *Options) setDefaults() {
	o.Name, o.Dir = cmp.Or(o.Name, "node"), cmp.Or(o.Dir, os.TempDir())
}

// start boots a cluster, and returns when it is ready. After a failure it ends the cluster, and
// collects its logs.
func (o Options) start(
	ctx context.Context, s *steps, software *build.Software,
	boot func(context.Context, Options, *steps, *build.Software) (*Cluster, error),
) (*Cluster, error) {
	c, err := boot(ctx, o, s, software)
	if err != nil {
		return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
	}
	if err := c.ready(ctx, o, software); err != nil {
		err = fmt.Errorf("start cluster %s: %w", o.Name, err)
		return nil, errors.Join(err, c.collectFailed(o.Logs, software.Logs), c.end())
	}
	return c, nil
}

// boot starts the machine and its services.
func boot(
	ctx context.Context, o Options, s *steps, software *build.Software,
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
	if err := errors.Join(d.install(o, software), d.credentials(o, ca, "127.0.0.1")); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	m, err := machine.Start(ctx, software.Keeper, dir, o.machine(software))
	if err != nil {
		return nil, err
	}
	s.done("the machine is up: process %d, folder %s", m.PID(), m.Dir())
	c, err = newCluster(s, m, ca)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.nodes = []Node{&localNode{Machine: m, cluster: c, name: o.Name}}
	return c, nil
}

// newCluster returns the cluster of a machine with the control plane, without nodes.
func newCluster(s *steps, m *machine.Machine, ca *authority) (*Cluster, error) {
	f, err := forward(func() string {
		return fmt.Sprintf("/proc/%d/ns/net", m.PID())
	}, "127.0.0.1:"+apiPort)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		kubeconfig: filepath.Join(m.Dir(), "kubeconfig"), steps: s,
		logs: func(to string) error {
			return os.CopyFS(to, os.DirFS(filepath.Join(m.Dir(), machine.LogDir)))
		},
		end: func() error { return errors.Join(f.listener.Close(), m.Close()) },
	}
	kubeconfig, err := ca.administrator(f.address())
	if err == nil {
		err = c.reachable(kubeconfig)
	}
	if err != nil {
		return nil, errors.Join(err, f.listener.Close())
	}
	return c, nil
}

// machine is what the node is made of: this machine's programs and libraries, and the cluster's
// own.
func (o Options) machine(software *build.Software) machine.Spec {
	spec := machine.Spec{
		Hostname: o.Name, Services: o.services(nodeIPv4),
		Binds: map[string]string{
			"/usr": "/usr", "/software/kubernetes": software.Kubernetes,
			"/software/runtime": software.Runtime,
		},
		Addresses: o.both(nodeIPv4+"/24", nodeIPv6+"/64"),
		Routes:    o.both(serviceRangeIPv4, serviceRange),
		Env: []string{
			"PATH=/software/kubernetes:/software/runtime:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
			"HOME=/root", "KUBECONFIG=" + adminConfig,
			"CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock",
		},
	}
	// Where the loader finds libraries, and which of two implementations a name in /usr/sbin is.
	for _, file := range []string{"/etc/ld.so.cache", "/etc/alternatives"} {
		if _, err := os.Stat(file); err == nil {
			spec.Binds[file] = file
		}
	}
	return spec
}

// administrator is the kubeconfig of one, for a server at an address.
func (a *authority) administrator(address string) ([]byte, error) {
	client, err := a.client("kubernetes-admin", "system:masters")
	if err != nil {
		return nil, err
	}
	return a.kubeconfig("https://"+address, client)
}

// reachable makes the clients of an administrator outside of the nodes.
func (c *Cluster) reachable(kubeconfig []byte) error {
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
