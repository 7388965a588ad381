package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// A cluster sends requests to the API server.
type cluster struct{ config *rest.Config }

// connect returns the cluster that the kubeconfig and the flags select. It sends no request.
func (o *options) connect() (cluster, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return cluster{}, badInput("kubeconfig: %w", err)
	}
	return cluster{config}, nil
}

// client returns a client for an API group and version.
func (c cluster) client(gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.NegotiatedSerializer = &gv, scheme.Codecs.WithoutConversion()
	if config.APIPath = "/apis"; gv.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientFor(config)
}

// get requests the object that the target names, and decodes its JSON into object.
func (c cluster) get(ctx context.Context, t target, object any) error {
	resource := kinds[t.kind].resource
	client, err := c.client(resource.GroupVersion())
	if err != nil {
		return err
	}
	result := client.Get().Namespace(t.namespace).Resource(resource.Resource).Name(t.name).Do(ctx)
	if err := result.Error(); err != nil { // more detailed than the error of Raw
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, object)
}

// list lists objects of the core group in a namespace, or in all namespaces if namespace is empty.
func (c cluster) list(
	ctx context.Context, resource, namespace string, o metav1.ListOptions, into runtime.Object,
) error {
	client, err := c.client(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return client.Get().Namespace(namespace).Resource(resource).VersionedParams(&o,
		scheme.ParameterCodec).Do(ctx).Into(into)
}

// defaultAgentNamespace is the namespace that is searched for node agents first.
const defaultAgentNamespace = "istio-system"

// agents lists the pods of the node agents on a node, or on all nodes if node is empty.
func (o *options) agents(ctx context.Context, c cluster, node string) ([]corev1.Pod, error) {
	namespace, err := o.findAgents(ctx, c)
	if err != nil || namespace == "" {
		return nil, err
	}
	list := metav1.ListOptions{LabelSelector: o.agentSelector}
	if node != "" {
		list.FieldSelector = "spec.nodeName=" + node
	}
	var pods corev1.PodList
	if err := c.list(ctx, "pods", namespace, list, &pods); err != nil {
		return nil, fmt.Errorf("list node agents: %w", err)
	}
	return pods.Items, nil
}

// findAgents returns the result of [options.searchAgents], and keeps the namespace once it is
// found. It is safe for concurrent use.
func (o *options) findAgents(ctx context.Context, c cluster) (string, error) {
	o.agentSearch.Lock()
	defer o.agentSearch.Unlock()
	var err error
	if o.foundNamespace == "" {
		o.foundNamespace, err = o.searchAgents(ctx, c)
	}
	return o.foundNamespace, err
}

// searchAgents returns the namespace of the node agents, or an empty string if there are none. If
// the flag is not set, this is defaultAgentNamespace if it contains any, and otherwise the only
// namespace with pods that have the agents' labels. Any user who may create a pod can set these
// labels and answer for an agent. Therefore several namespaces are an error.
func (o *options) searchAgents(ctx context.Context, c cluster) (string, error) {
	if o.agentNamespace != "" {
		return o.agentNamespace, nil
	}
	list := metav1.ListOptions{LabelSelector: o.agentSelector}
	var pods corev1.PodList
	one := list
	one.Limit = 1
	err := c.list(ctx, "pods", defaultAgentNamespace, one, &pods)
	if err == nil && len(pods.Items) > 0 {
		return defaultAgentNamespace, nil
	}
	pods = corev1.PodList{}
	if allErr := c.list(ctx, "pods", metav1.NamespaceAll, list, &pods); allErr != nil {
		if err == nil && apierrors.IsForbidden(allErr) {
			return "", fmt.Errorf("the namespace %s has no node agents, and other namespaces "+
				"cannot be searched: %w; set --agent-namespace to the namespace of the node agents",
				defaultAgentNamespace, allErr)
		}
		return "", fmt.Errorf("list node agents: %w", allErr)
	}
	found := map[string]bool{}
	for i := range pods.Items {
		found[pods.Items[i].Namespace] = true
	}
	namespaces := slices.Sorted(maps.Keys(found))
	switch len(namespaces) {
	case 0:
		return "", nil
	case 1:
		return namespaces[0], nil
	}
	return "", badInput("pods with the labels of node agents (%s) exist in several namespaces: %s; "+
		"set --agent-namespace to the namespace of the node agents, because any user who may create "+
		"pods can set these labels", o.agentSelector, strings.Join(namespaces, ", "))
}

// agentOf returns the running pod of the node agent on a node.
func (o *options) agentOf(ctx context.Context, c cluster, node string) (*corev1.Pod, error) {
	pods, err := o.agents(ctx, c, node)
	if err != nil {
		return nil, err
	}
	if p := agentPod(pods, node); p != nil && p.Status.Phase == corev1.PodRunning {
		return p, nil
	}
	return nil, fmt.Errorf("no node agent runs on node %s (pods with the labels %s)", node,
		o.agentSelector)
}

// exec runs a command in the container of a node agent. If the command fails, the error is an
// exec.CodeExitError with its exit code.
func (c cluster) exec(
	ctx context.Context, pod *corev1.Pod, in io.Reader, out, errOut io.Writer, command ...string,
) error {
	client, err := c.client(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	options := &corev1.PodExecOptions{
		Container: agentContainer, Command: command, Stdin: in != nil, Stdout: true, Stderr: true,
	}
	request := client.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec)
	executor, err := c.executor(request.URL())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: in, Stdout: out, Stderr: errOut,
	})
}

// executor returns an executor that uses WebSockets, or SPDY if the API server does not support
// WebSockets, as kubectl does.
func (c cluster) executor(target *url.URL) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", target)
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", target.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
