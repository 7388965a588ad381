package main

import (
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completePod completes NAMESPACE/NAME, and NAME in the current namespace.
func (o *options) completePod(
	cmd *cobra.Command, args []string, begin string,
) ([]string, cobra.ShellCompDirective) {
	own, rest, err := split(cmd, args)
	if err != nil || len(rest) > 0 || cmd.Root().PersistentFlags().Parse(own) != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	c, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, _, found := strings.Cut(begin, "/")
	if found {
		return o.podNames(cmd, c, namespace, namespace+"/"), cobra.ShellCompDirectiveNoFileComp
	}
	current, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := o.podNames(cmd, c, current, "")
	var namespaces corev1.NamespaceList
	if err := c.list(cmd.Context(), "namespaces", "", metav1.ListOptions{},
		&namespaces); err == nil {
		for i := range namespaces.Items {
			names = append(names, namespaces.Items[i].Name+"/")
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// podNames returns the names of the pods in a namespace, with a prefix.
func (o *options) podNames(cmd *cobra.Command, c cluster, namespace, prefix string) []string {
	var pods corev1.PodList
	if err := c.list(cmd.Context(), "pods", namespace, metav1.ListOptions{}, &pods); err != nil {
		return nil
	}
	names := make([]string, len(pods.Items))
	for i := range pods.Items {
		names[i] = prefix + pods.Items[i].Name
	}
	return names
}
