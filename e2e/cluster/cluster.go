package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ConflistPath is the CNI configuration of a node, which has no other when it starts.
const ConflistPath = "/etc/cni/net.d/10-e2e.conflist"

// A Cluster is a running Kubernetes. Its methods are safe for concurrent use.
type Cluster struct {
	kubeconfig string
	config     *rest.Config
	clients    kubernetes.Interface
	nodes      []Node
	steps      *steps
	// logs copies the logs of the nodes' services into a folder; end takes the nodes away. They are
	// the provider's.
	logs func(dir string) error
	end  func() error

	stop    sync.Once
	stopped error
}

// Kubeconfig is the path of a file with which this machine's kubectl is the cluster's
// administrator.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// REST returns a copy of the same for client-go, without a limit on the number of requests.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.config) }

// Nodes are the machines, the one with the control plane first.
func (c *Cluster) Nodes() []Node { return append([]Node(nil), c.nodes...) }

// LoadImage makes the images of an archive (as e2e/image writes it, or docker save) known to all
// nodes. Pods name them with imagePullPolicy Never or IfNotPresent.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	for _, n := range c.nodes {
		if err := loadImage(ctx, n, archive); err != nil {
			return fmt.Errorf("load image %s into %s: %w", archive, n.Name(), err)
		}
	}
	return nil
}

func loadImage(ctx context.Context, n Node, archive string) error {
	if vm, is := n.(*vmNode); is && vm.runtime == CRIO {
		return vm.loadImage(ctx, archive)
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	load := n.Command(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--local", "-")
	load.Stdin = file
	return outputText(load.CombinedOutput())
}

// outputText is the error of a command, with its output.
func outputText(output []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// Stop ends the cluster, and leaves nothing of it: no process, mount, cgroup, namespace or file.
// With E2E_KEEP=1 in the environment it says first how to reach the cluster, and waits for an
// interrupt. The second time it does nothing.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		if os.Getenv("E2E_KEEP") == "1" {
			c.waitForInterrupt()
		}
		c.stopped = c.end()
	})
	if c.stopped != nil {
		return errors.Join(errors.New("stop the cluster"), c.stopped)
	}
	return nil
}
