package cluster

import (
	"context"
	"net/http"
	"net/url"
	"slices"
)

// A Taint contains all fields of a taint of a node.
type Taint map[string]any

// Untaint removes all taints with a key from a node, and reports whether it has removed any. If the
// node has changed since it was read, the API server rejects the request ([IsConflict]), and the
// node must be read again.
func (c *Client) Untaint(ctx context.Context, n *Node, key string) (bool, error) {
	remaining := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t Taint) bool {
		return t["key"] == key
	})
	if len(remaining) == len(n.Spec.Taints) {
		return false, nil
	}
	err := c.do(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(n.Name),
		map[string]any{
			"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
			"spec":     map[string]any{"taints": remaining},
		}, nil)
	return err == nil, err
}
