package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
)

// A Taint is a taint of a node: its key and its complete JSON.
type Taint struct {
	Key string
	raw json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Taint) UnmarshalJSON(text []byte) error {
	var fields struct{ Key string }
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	t.Key, t.raw = fields.Key, slices.Clone(text)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (t Taint) MarshalJSON() ([]byte, error) { return t.raw, nil }

// Untaint removes all taints with a key from a node, and reports whether it has removed any. If the
// node has changed since it was read, the API server rejects the request ([IsConflict]), and the
// node must be read again.
func (c *Client) Untaint(ctx context.Context, n *Node, key string) (bool, error) {
	remaining := []Taint{} // not nil, which would be null in JSON
	for _, t := range n.Spec.Taints {
		if t.Key != key {
			remaining = append(remaining, t)
		}
	}
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
