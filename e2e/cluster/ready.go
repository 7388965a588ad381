package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
)

// makeReady loads images, and waits until the cluster can run pods. It runs CoreDNS if o.DNS is
// true.
func (c *Cluster) makeReady(ctx context.Context, o Options, software *build.Software) error {
	for _, node := range c.nodes {
		condition := "the container runtime of " + node.Name() + " responds"
		err := c.progress.waitUntil(ctx, condition, func(ctx context.Context) error {
			return withOutput(node.Command(ctx, "crictl", "version").CombinedOutput())
		})
		if err != nil {
			return err
		}
	}
	images := append([]string{software.Pause}, o.Images...)
	if o.DNS {
		images = append(images, software.DNS)
	}
	for _, archive := range images {
		if err := c.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	c.progress.logf("loaded %d image archives", len(images))
	for _, node := range c.nodes {
		if err := c.waitForReadyNode(ctx, node.Name(), time.Time{}); err != nil {
			return err
		}
	}
	// Pods are rejected until their service account exists.
	err := c.progress.waitUntil(ctx, "the default service account exists", func(
		ctx context.Context,
	) error {
		_, err := c.clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
			metav1.GetOptions{})
		return err
	})
	if err != nil || !o.DNS {
		return err
	}
	return c.runDNS(ctx)
}

// waitForReadyNode waits until the Ready condition of the node is true and its last heartbeat is
// later than the given time. A zero time accepts every heartbeat.
func (c *Cluster) waitForReadyNode(ctx context.Context, name string, after time.Time) error {
	err := c.progress.waitUntil(ctx, "the API server is ready", func(ctx context.Context) error {
		return c.clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	return c.progress.waitUntil(ctx, "node "+name+" is ready", func(ctx context.Context) error {
		n, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type != corev1.NodeReady {
				continue
			}
			// Timestamps in the API have a resolution of one second.
			earliest := after.Truncate(time.Second).Add(time.Second)
			if !after.IsZero() && condition.LastHeartbeatTime.Time.Before(earliest) {
				return fmt.Errorf("no heartbeat of the kubelet since %s",
					after.Format(time.TimeOnly))
			}
			if condition.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", condition.Reason, condition.Message)
		}
		return errors.New("no Ready condition")
	})
}
