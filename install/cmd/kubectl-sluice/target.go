package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podKind is the kind of pods.
const podKind = "pod"

// A kind is a kind of objects: the resource of the API server, and kubectl's short name.
type kind struct {
	resource  schema.GroupVersionResource
	shortName string
}

// kinds contains the kinds that the user can name.
var kinds = map[string]kind{
	podKind:       {corev1.SchemeGroupVersion.WithResource("pods"), "po"},
	"deployment":  {appsv1.SchemeGroupVersion.WithResource("deployments"), "deploy"},
	"statefulset": {appsv1.SchemeGroupVersion.WithResource("statefulsets"), "sts"},
	"daemonset":   {appsv1.SchemeGroupVersion.WithResource("daemonsets"), "ds"},
	"replicaset":  {appsv1.SchemeGroupVersion.WithResource("replicasets"), "rs"},
	"job":         {batchv1.SchemeGroupVersion.WithResource("jobs"), ""},
	"cronjob":     {batchv1.SchemeGroupVersion.WithResource("cronjobs"), "cj"},
}

// kindOf returns the kind for one of its names, or "" if the name is not known. As in kubectl, the
// name may be in the plural and have the API group as a suffix, and upper case is the same as lower
// case.
func kindOf(name string) string {
	name, group, hasGroup := strings.Cut(strings.ToLower(name), ".")
	for kind, k := range kinds {
		isName := name == kind || name == k.resource.Resource
		if isName && (!hasGroup || group != "" && group == k.resource.Group) ||
			!hasGroup && name != "" && name == k.shortName {
			return kind
		}
	}
	return ""
}

// A target is an object that a user names.
type target struct{ namespace, kind, name string }

// parseTarget parses NAMESPACE/NAME, KIND/NAME, NAMESPACE/KIND/NAME or NAME.
func parseTarget(text, namespace string) (target, error) {
	t := target{namespace, podKind, text}
	parts := strings.Split(text, "/")
	for _, part := range parts {
		if faults := content.IsPathSegmentName(part); len(faults) > 0 {
			return t, badInput("%q: %q is not a name: %s", text, part, strings.Join(faults, ", "))
		}
	}
	switch {
	case slices.Contains(parts, "") || len(parts) > 3, len(parts) == 3 && kindOf(parts[1]) == "":
		return t, badInput("%q is not NAMESPACE/NAME, NAME, KIND/NAME or NAMESPACE/KIND/NAME", text)
	case len(parts) == 3:
		t = target{parts[0], kindOf(parts[1]), parts[2]}
	case len(parts) == 2 && kindOf(parts[0]) != "":
		t.kind, t.name = kindOf(parts[0]), parts[1]
	case len(parts) == 2:
		t.namespace, t.name = parts[0], parts[1]
	}
	return t, nil
}

// checkTarget returns an error if the text, or the label selector instead of it, is invalid.
func (o *options) checkTarget(text string) error {
	if o.selector == "" {
		_, err := parseTarget(text, "")
		return err
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return badInput("--selector: %q is not a label selector: %w", o.selector, err)
	}
	return nil
}

// pods returns the running pods that the user names.
func (o *options) pods(ctx context.Context, c cluster, text string) ([]corev1.Pod, error) {
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, badInput("kubeconfig: %w", err)
	}
	if o.selector != "" {
		return c.selectPods(ctx, namespace, o.selector,
			fmt.Sprintf("label selector %s in namespace %s", o.selector, namespace))
	}
	t, err := parseTarget(text, namespace)
	if err != nil {
		return nil, err
	}
	if t.kind == podKind {
		var pod corev1.Pod
		err := c.get(ctx, t, &pod)
		if apierrors.IsNotFound(err) {
			return nil, inputError{fmt.Errorf("%w; for a force-deleted pod whose sandbox still "+
				"exists, run rules with --pod %s/%s in the node agent of its node", err,
				t.namespace, t.name)}
		}
		if err != nil {
			return nil, err
		}
		if !isActive(&pod) {
			return nil, badInput("pod %s/%s is not running: phase %s", t.namespace, t.name,
				pod.Status.Phase)
		}
		return []corev1.Pod{pod}, nil
	}
	selector, err := c.selectorOf(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return nil, inputError{err}
	case err != nil:
		return nil, err
	case selector == "":
		return nil, badInput("%s %s/%s has no running pod", t.kind, t.namespace, t.name)
	}
	return c.selectPods(ctx, t.namespace, selector,
		fmt.Sprintf("%s %s/%s", t.kind, t.namespace, t.name))
}

// selectorOf returns the label selector of the pods of a workload, or "" if a CronJob has no active
// job.
func (c cluster) selectorOf(ctx context.Context, t target) (string, error) {
	if t.kind != "cronjob" {
		var workload struct {
			Spec struct {
				Selector *metav1.LabelSelector `json:"selector"`
			} `json:"spec"`
		}
		err := c.get(ctx, t, &workload)
		return metav1.FormatLabelSelector(workload.Spec.Selector), err
	}
	var cronJob batchv1.CronJob
	err := c.get(ctx, t, &cronJob)
	if err != nil || len(cronJob.Status.Active) == 0 {
		return "", err
	}
	names := make([]string, len(cronJob.Status.Active))
	for i, job := range cronJob.Status.Active {
		names[i] = job.Name
	}
	return batchv1.JobNameLabel + " in (" + strings.Join(names, ",") + ")", nil
}

// selectPods returns the running pods that a label selector matches. If no such pod exists, the
// error contains the description of the selector.
func (c cluster) selectPods(
	ctx context.Context, namespace, selector, description string,
) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.list(ctx, "pods", namespace, metav1.ListOptions{LabelSelector: selector},
		&list); err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isActive(&p) })
	if len(pods) == 0 {
		return nil, badInput("%s has no running pod", description)
	}
	return pods, nil
}

// isActive reports whether the pod is on a node and has not ended.
func isActive(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded &&
		p.Status.Phase != corev1.PodFailed
}
