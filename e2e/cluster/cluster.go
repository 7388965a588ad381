package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ConflistPath is the path of the only CNI configuration of a new node.
const ConflistPath = "/etc/cni/net.d/10-e2e.conflist"

// A Cluster is a running Kubernetes cluster. Its methods are safe for concurrent use.
type Cluster struct {
	kubeconfig string
	config     *rest.Config
	clients    kubernetes.Interface
	nodes      []Node
	progress   *progress
	// copyLogs copies the logs of the nodes' services into a directory, and remove removes the
	// nodes. Start, StartKind and StartVM set both.
	copyLogs func(dir string) error
	remove   func() error

	stopOnce sync.Once
	stopErr  error
}

// Kubeconfig returns the path of a kubeconfig of the cluster's administrator, for use on this
// machine.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// REST returns a copy of the administrator's configuration for client-go, without rate limiting.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.config) }

// Nodes returns the nodes. The first one runs the control plane, unless it is a virtual machine.
func (c *Cluster) Nodes() []Node { return append([]Node(nil), c.nodes...) }

// LoadImage imports the images of an archive on all nodes. The archive must be written by e2e/image
// or, if the runtime is containerd, by docker save. Pods use the images with imagePullPolicy Never
// or IfNotPresent.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	for _, n := range c.nodes {
		if err := loadImage(ctx, n, archive); err != nil {
			return fmt.Errorf("load image %s into %s: %w", archive, n.Name(), err)
		}
	}
	return nil
}

// loadImage imports the images of an archive on a node.
func loadImage(ctx context.Context, n Node, archive string) error {
	if vm, isVM := n.(*vmNode); isVM && vm.runtime == CRIO {
		return vm.loadImage(ctx, archive)
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	load := n.Command(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--local", "-")
	load.Stdin = file
	return withOutput(load.CombinedOutput())
}

// withOutput returns err with the output of the command that failed, or nil if err is nil.
func withOutput(output []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// Stop stops the cluster, and removes all its processes, mounts, cgroups, namespaces and files. If
// E2E_KEEP=1 is set, it first prints how to access the cluster and waits for an interrupt. Further
// calls only return the error of the first one.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		if os.Getenv("E2E_KEEP") == "1" {
			c.waitForInterrupt()
		}
		c.stopErr = c.remove()
	})
	if c.stopErr != nil {
		return fmt.Errorf("stop the cluster: %w", c.stopErr)
	}
	return nil
}
