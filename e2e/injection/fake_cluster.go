package injection

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// apiAddress is the address of the API server in istiod's namespace.
const apiAddress = "127.0.0.1:6443"

// createObjects creates the objects that istiod reads.
func (i *Istiod) createObjects(p controlPlane, namespaces []corev1.Namespace) error {
	for name, config := range p.configs {
		i.api.put(key{"api/v1/configmaps", systemNamespace, name}, config)
	}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.NodeInfo.KubeletVersion = kubernetesVersion
	put := func(resource, name string, object any) error {
		text, err := json.Marshal(object)
		i.api.put(key{resource: resource, name: name}, text)
		return err
	}
	errs := []error{put("api/v1/nodes", node.Name, node)}
	for _, ns := range namespaces {
		errs = append(errs, put("api/v1/namespaces", ns.Name, ns))
	}
	return errors.Join(errs...)
}

// startAPIServer creates istiod's network namespace, and starts the fake API server in it.
func (i *Istiod) startAPIServer() error {
	var err error
	if i.ns, err = netns.New(); err != nil {
		return err
	}
	var l net.Listener
	err = i.ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		l, err = net.Listen("tcp", apiAddress)
		return err
	})
	if err != nil {
		return fmt.Errorf("fake API server: %w", err)
	}
	i.server = &http.Server{Handler: i.api}
	go func() { _ = i.server.Serve(l) }()
	return nil
}

// kubeconfig is istiod's kubeconfig for the fake API server.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: "http://` + apiAddress + `"}}]
contexts: [{name: fake, context: {cluster: fake, user: ""}}]
current-context: fake
`
