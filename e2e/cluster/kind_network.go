package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// createClients creates the administrator's clients, which connect to the API server through a port
// of this machine. It also copies the administrator's kubeconfig to every node.
func (k *kindCluster) createClients() error {
	first := k.kindNodes[0]
	nodeKubeconfig, err := os.ReadFile(first.Path(adminKubeconfig))
	if err != nil {
		return err
	}
	for _, n := range k.kindNodes[1:] {
		if err := os.WriteFile(n.Path(adminKubeconfig), nodeKubeconfig, 0o600); err != nil {
			return err
		}
	}
	config, err := clientcmd.Load(nodeKubeconfig)
	if err != nil {
		return err
	}
	f, err := forward(func() string {
		return filepath.Join(first.processDir(), "ns/net")
	}, "127.0.0.1:"+apiPort)
	if err != nil {
		return err
	}
	k.remove = func() error { return errors.Join(f.listener.Close(), k.engine.Close()) }
	for _, c := range config.Clusters {
		c.Server = "https://" + f.address()
	}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return k.setClients(kubeconfig)
}

// installPodNetwork installs the pods' network on the nodes. It also removes the taint of the
// control plane, so that pods run on every node.
func (k *kindCluster) installPodNetwork(ctx context.Context) error {
	for _, n := range k.kindNodes {
		var cidrs []string
		err := k.progress.waitUntil(ctx, n.name+" has addresses for pods", func(
			ctx context.Context,
		) error {
			node, err := k.clients.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if cidrs = node.Spec.PodCIDRs; len(cidrs) != len(k.options.addressList("", "")) {
				return fmt.Errorf("pod CIDRs %q, want one for each family", cidrs)
			}
			node.Spec.Taints = withoutTaint(node.Spec.Taints,
				"node-role.kubernetes.io/control-plane")
			_, err = k.clients.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
		d := &disk{root: n.Path("/")}
		d.copyPrograms(k.software.Plugins, "/opt/cni/bin")
		// The file is renamed when it is complete, because containerd watches the directory.
		d.write(ConflistPath+".new", k.options.conflist(cidrs...), 0o644)
		if d.err == nil {
			d.err = os.Rename(n.Path(ConflistPath+".new"), n.Path(ConflistPath))
		}
		if d.err != nil {
			return fmt.Errorf("install the pod network on %s: %w", n.name, d.err)
		}
	}
	return k.addRoutes(ctx)
}

// withoutTaint removes the taints with the key, and returns the others.
func withoutTaint(taints []corev1.Taint, key string) []corev1.Taint {
	return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
}

// addRoutes adds routes on each node to the pods of the other nodes.
func (k *kindCluster) addRoutes(ctx context.Context) error {
	list, err := k.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, from := range k.kindNodes {
		for _, to := range list.Items {
			if to.Name == from.name {
				continue
			}
			for _, cidr := range to.Spec.PodCIDRs {
				gateway, err := addressOfFamily(to, netip.MustParsePrefix(cidr).Addr())
				if err != nil {
					return err
				}
				if _, err := run(ctx, from, "ip", "route", "replace", cidr, "via",
					gateway); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addressOfFamily returns the node's address of the same family as other.
func addressOfFamily(n corev1.Node, other netip.Addr) (string, error) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil &&
			ip.Is4() == other.Is4() {
			return a.Address, nil
		}
	}
	return "", fmt.Errorf("node %s has no address of the family of %s", n.Name, other)
}
