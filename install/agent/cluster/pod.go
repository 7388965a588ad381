package cluster

import (
	"context"
	"net/http"
	"net/url"
)

func podPath(n Name) string {
	return "/api/v1/namespaces/" + url.PathEscape(n.Namespace) + "/pods/" + url.PathEscape(n.Name)
}

// DeletePod deletes a pod if it is still as it was at a version. Otherwise the error answers
// [IsConflict] or [IsNotFound].
func (c *Client) DeletePod(ctx context.Context, pod Name, uid, resourceVersion string) error {
	return c.do(ctx, http.MethodDelete, podPath(pod), nil, map[string]any{
		"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]string{"uid": uid, "resourceVersion": resourceVersion},
	}, nil)
}

// LabelPod gives a pod a label, if it is still the one of a UID. It patches the status, which may
// carry labels too and is the lesser right.
func (c *Client) LabelPod(ctx context.Context, pod Name, uid, key, value string) error {
	return c.do(ctx, http.MethodPatch, podPath(pod)+"/status", nil, map[string]any{
		"metadata": map[string]any{"uid": uid, "labels": map[string]string{key: value}},
	}, nil)
}
