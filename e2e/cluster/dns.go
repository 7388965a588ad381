package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed dns.yaml
var dnsManifest []byte

// runDNS starts CoreDNS, and returns when a pod of CoreDNS is ready.
func (c *Cluster) runDNS(ctx context.Context) error {
	apply := c.nodes[0].Command(ctx, "kubectl", "apply", "--filename=-")
	apply.Stdin = bytes.NewReader(dnsManifest)
	if err := withOutput(apply.CombinedOutput()); err != nil {
		return fmt.Errorf("apply DNS: %w", err)
	}
	return c.progress.waitUntil(ctx, "DNS is ready", func(ctx context.Context) error {
		d, err := c.clients.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns",
			metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas == 0 {
			err = errors.New("no pod is ready")
		}
		return err
	})
}
