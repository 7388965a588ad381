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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// podKind is the kind of pods.
const podKind = "pod"

// kindNames contains kubectl's names of each kind that may precede a name.
var kindNames = map[string][]string{
	podKind:       {"po", "pods"},
	"deployment":  {"deploy", "deployments", "deployment.apps", "deployments.apps"},
	"statefulset": {"sts", "statefulsets", "statefulset.apps", "statefulsets.apps"},
	"daemonset":   {"ds", "daemonsets", "daemonset.apps", "daemonsets.apps"},
	"replicaset":  {"rs", "replicasets", "replicaset.apps", "replicasets.apps"},
	"job":         {"jobs", "job.batch", "jobs.batch"},
	"cronjob":     {"cj", "cronjobs", "cronjob.batch", "cronjobs.batch"},
}

// kindOf returns the kind with a name, and "" if there is none.
func kindOf(name string) string {
	for kind, names := range kindNames {
		if name == kind || slices.Contains(names, name) {
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

// pods returns the running pods that the user names.
func (o *options) pods(ctx context.Context, c cluster, text string) ([]corev1.Pod, error) {
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, inputError{err}
	}
	if o.selector != "" {
		if _, err := labels.Parse(o.selector); err != nil {
			return nil, badInput("--selector: %w", err)
		}
		return c.selected(ctx, namespace, o.selector,
			fmt.Sprintf("label selector %s in namespace %s", o.selector, namespace))
	}
	t, err := parseTarget(text, namespace)
	if err != nil {
		return nil, err
	}
	if t.kind == podKind {
		var pod corev1.Pod
		if err := c.get(ctx, corev1.SchemeGroupVersion, "pods", t.namespace, t.name,
			&pod); err != nil {
			return nil, named(err)
		}
		if !isRunning(&pod) {
			return nil, badInput("pod %s/%s is not running: phase %s", t.namespace, t.name,
				pod.Status.Phase)
		}
		return []corev1.Pod{pod}, nil
	}
	selector, err := c.selectorOf(ctx, t)
	if err != nil {
		return nil, named(err)
	}
	if selector == "" {
		return nil, badInput("%s %s/%s has no running pod", t.kind, t.namespace, t.name)
	}
	return c.selected(ctx, t.namespace, selector,
		fmt.Sprintf("%s %s/%s", t.kind, t.namespace, t.name))
}

// named turns the error for an object that does not exist into an inputError.
func named(err error) error {
	if apierrors.IsNotFound(err) {
		return inputError{err}
	}
	return err
}

// selectorOf returns the label selector of the pods of a workload; "" if it has none now.
func (c cluster) selectorOf(ctx context.Context, t target) (string, error) {
	text := func(s *metav1.LabelSelector, err error) (string, error) {
		if err != nil {
			return "", err
		}
		return metav1.FormatLabelSelector(s), nil
	}
	apps, batch := appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion
	switch t.kind {
	case "deployment":
		var w appsv1.Deployment
		err := c.get(ctx, apps, "deployments", t.namespace, t.name, &w)
		return text(w.Spec.Selector, err)
	case "statefulset":
		var w appsv1.StatefulSet
		err := c.get(ctx, apps, "statefulsets", t.namespace, t.name, &w)
		return text(w.Spec.Selector, err)
	case "daemonset":
		var w appsv1.DaemonSet
		err := c.get(ctx, apps, "daemonsets", t.namespace, t.name, &w)
		return text(w.Spec.Selector, err)
	case "replicaset":
		var w appsv1.ReplicaSet
		err := c.get(ctx, apps, "replicasets", t.namespace, t.name, &w)
		return text(w.Spec.Selector, err)
	case "job":
		var w batchv1.Job
		err := c.get(ctx, batch, "jobs", t.namespace, t.name, &w)
		return text(w.Spec.Selector, err)
	}
	var w batchv1.CronJob
	if err := c.get(ctx, batch, "cronjobs", t.namespace, t.name, &w); err != nil ||
		len(w.Status.Active) == 0 {
		return "", err
	}
	names := make([]string, len(w.Status.Active))
	for i, job := range w.Status.Active {
		names[i] = job.Name
	}
	return batchv1.JobNameLabel + " in (" + strings.Join(names, ",") + ")", nil
}

// selected returns the running pods with the labels.
func (c cluster) selected(
	ctx context.Context, namespace, selector, description string,
) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.list(ctx, "pods", namespace, metav1.ListOptions{LabelSelector: selector},
		&list); err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isRunning(&p) })
	if len(pods) == 0 {
		return nil, badInput("%s has no running pod", description)
	}
	return pods, nil
}

// isRunning reports whether the pod has a network namespace on a node.
func isRunning(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded &&
		p.Status.Phase != corev1.PodFailed
}
