package cluster

import (
	"context"
	"net/http"
	"net/url"
)

func podPath(n Name) string {
	return "/api/v1/namespaces/" + url.PathEscape(n.Namespace) + "/pods/" + url.PathEscape(n.Name)
}

// DeletePod deletes a pod if its UID and version are still the given ones. Otherwise [IsConflict]
// or [IsNotFound] is true for the error.
func (c *Client) DeletePod(ctx context.Context, pod Name, uid, resourceVersion string) error {
	return c.do(ctx, http.MethodDelete, podPath(pod), map[string]any{
		"kind": "DeleteOptions", "apiVersion": "v1",
		"preconditions": map[string]string{"uid": uid, "resourceVersion": resourceVersion},
	}, nil)
}

// LabelPod adds a label to a pod with the UID.
func (c *Client) LabelPod(ctx context.Context, pod Name, uid, key, value string) error {
	return c.patchMetadata(ctx, pod, uid, "labels", map[string]string{key: value})
}

// AnnotatePod sets an annotation of a pod with the UID, or removes it if value is nil.
func (c *Client) AnnotatePod(ctx context.Context, pod Name, uid, key string, value *string) error {
	return c.patchMetadata(ctx, pod, uid, "annotations", map[string]*string{key: value})
}

// patchMetadata patches a field of the metadata of a pod with the UID. It patches the status,
// as istio-cni does, because the permission for this is the smallest that includes metadata.
func (c *Client) patchMetadata(
	ctx context.Context, pod Name, uid, field string, value any,
) error {
	return c.do(ctx, http.MethodPatch, podPath(pod)+"/status", map[string]any{
		"metadata": map[string]any{"uid": uid, field: value},
	}, nil)
}
