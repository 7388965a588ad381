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

// ready returns when the cluster runs pods.
func (c *Cluster) ready(ctx context.Context, o Options, software *build.Software) error {
	for _, node := range c.nodes {
		err := c.steps.reach(ctx, "the runtime of "+node.Name()+" answers", func(ctx context.Context) error {
			return outputText(node.Command(ctx, "crictl", "version").CombinedOutput())
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
	c.steps.done("%d images are loaded", len(images))
	for _, node := range c.nodes {
		if err := c.nodeReady(ctx, node.Name(), time.Time{}); err != nil {
			return err
		}
	}
	// A pod is refused before its service account exists.
	err := c.steps.reach(ctx, "service accounts are made", func(ctx context.Context) error {
		_, err := c.clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
			metav1.GetOptions{})
		return err
	})
	if err != nil || !o.DNS {
		return err
	}
	return c.runDNS(ctx)
}

// nodeReady returns when the API server has it from the kubelet, after a time, that the node is
// ready.
func (c *Cluster) nodeReady(ctx context.Context, name string, after time.Time) error {
	err := c.steps.reach(ctx, "the API server is ready", func(ctx context.Context) error {
		return c.clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	return c.steps.reach(ctx, "node "+name+" is ready", func(ctx context.Context) error {
		n, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type != corev1.NodeReady {
				continue
			}
			// The API has whole seconds.
			if condition.LastHeartbeatTime.Time.Before(
				after.Truncate(time.Second).Add(time.Second)) && !after.IsZero() {
				return errors.New("the kubelet has said nothing since")
			}
			if condition.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", condition.Reason, condition.Message)
		}
		return errors.New("no condition")
	})
}
