package injection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Inject sends the pod to istiod's webhook, as an API server does when a pod is created, and
// returns the resulting pod, which is equal to pod if istiod injects nothing. If istiod rejects the
// pod, the error contains the reason.
func (i *Istiod) Inject(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	p := *pod
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	original, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview",
		},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(p.Name), Namespace: p.Namespace, Name: p.Name,
			Operation: admissionv1.Create,
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:    runtime.RawExtension{Raw: original},
		},
	}
	if err := i.callWebhook(ctx, &review); err != nil {
		return nil, fmt.Errorf("inject pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	injected := original
	if len(review.Response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(review.Response.Patch)
		if err != nil {
			return nil, fmt.Errorf("inject pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		if injected, err = patch.Apply(original); err != nil {
			return nil, fmt.Errorf("inject pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	var result corev1.Pod
	return &result, json.Unmarshal(injected, &result)
}

// callWebhook sends a review to the webhook, and stores the response in the review. It returns an
// error if the webhook rejects the pod.
func (i *Istiod) callWebhook(ctx context.Context, review *admissionv1.AdmissionReview) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhookURL,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := i.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("webhook: status %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(review); err != nil {
		return fmt.Errorf("webhook: invalid response: %w", err)
	}
	switch {
	case review.Response == nil:
		return errors.New("webhook: no response in the review")
	case !review.Response.Allowed:
		return fmt.Errorf("rejected by istiod: %s", review.Response.Result.Message)
	}
	return nil
}
