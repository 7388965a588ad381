package cluster

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A DaemonSet contains the required fields of a DaemonSet: its metadata and its node selection.
type DaemonSet struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template struct {
			Spec PodSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// IsBeingDeleted reports whether the DaemonSet is being deleted, which is irreversible.
func (d *DaemonSet) IsBeingDeleted() bool { return d.DeletionTimestamp != nil }

// A Node contains the required fields of a node.
type Node struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Taints []Taint `json:"taints"`
	} `json:"spec"`
}

// A Name identifies an object in a namespace.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

func daemonSetsPath(namespace string) string {
	return "/apis/apps/v1/namespaces/" + url.PathEscape(namespace) + "/daemonsets"
}

// DaemonSet returns the DaemonSet with the name. [IsNotFound] is true for the error if it does not
// exist.
func (c *Client) DaemonSet(ctx context.Context, n Name) (*DaemonSet, error) {
	d, path := new(DaemonSet), daemonSetsPath(n.Namespace)+"/"+url.PathEscape(n.Name)
	if err := c.get(ctx, path, n.Name, d); err != nil {
		return nil, err
	}
	return d, nil
}

// Node returns the node with the name. [IsNotFound] is true for the error if it does not exist.
func (c *Client) Node(ctx context.Context, name string) (*Node, error) {
	n, path := new(Node), "/api/v1/nodes/"+url.PathEscape(name)
	if err := c.get(ctx, path, name, n); err != nil {
		return nil, err
	}
	return n, nil
}

// DeleteDaemonSet deletes a DaemonSet in the foreground, after its pods, and does not wait.
func (c *Client) DeleteDaemonSet(ctx context.Context, n Name) error {
	options := map[string]any{
		"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
	}
	return c.do(ctx, http.MethodDelete, daemonSetsPath(n.Namespace)+"/"+url.PathEscape(n.Name),
		options, nil)
}

// podsPerPage is the number of pods that one request lists. The metadata of a pod has about 1 KiB.
const podsPerPage = 500

// Pods returns the names of the pods of a namespace that a label selector matches.
func (c *Client) Pods(ctx context.Context, namespace, selector string) ([]string, error) {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
	query := url.Values{"labelSelector": {selector}, "limit": {strconv.Itoa(podsPerPage)}}
	var names []string
	for {
		page, err := c.listMetadata(ctx, path, query)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if page.Continue == "" {
			return names, nil
		}
		query.Set("continue", page.Continue)
	}
}
