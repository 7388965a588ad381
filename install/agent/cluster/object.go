package cluster

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Meta contains the required fields of an object's metadata.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
}

// A DaemonSet contains the required fields of a DaemonSet: deletion and node selection.
type DaemonSet struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		Template struct {
			Spec PodSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// IsBeingDeleted reports whether the DaemonSet is being deleted, which is irreversible.
func (d *DaemonSet) IsBeingDeleted() bool { return d.Meta.DeletionTimestamp != "" }

// A Node contains the required fields of a node.
type Node struct {
	Meta Meta `json:"metadata"`
	Spec struct {
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
	if err := c.do(ctx, http.MethodGet, path, nil, d); err != nil {
		return nil, err
	}
	if err := checkName(&d.Meta, n.Name, path); err != nil {
		return nil, err
	}
	return d, nil
}

// Node returns the node with the name. [IsNotFound] is true for the error if it does not exist.
func (c *Client) Node(ctx context.Context, name string) (*Node, error) {
	n, path := new(Node), "/api/v1/nodes/"+url.PathEscape(name)
	if err := c.do(ctx, http.MethodGet, path, nil, n); err != nil {
		return nil, err
	}
	if err := checkName(&n.Meta, name, path); err != nil {
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
		var page struct {
			Kind string `json:"kind"`
			Meta struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []struct {
				Meta Meta `json:"metadata"`
			} `json:"items"`
		}
		response, err := c.requestMetadata(ctx, path, query)
		if err != nil {
			return nil, err
		}
		if err := decode(response, http.MethodGet, path, &page); err != nil {
			return nil, err
		}
		if err := checkList(page.Kind, path); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			names = append(names, item.Meta.Name)
		}
		if page.Meta.Continue == "" {
			return names, nil
		}
		query.Set("continue", page.Meta.Continue)
	}
}
