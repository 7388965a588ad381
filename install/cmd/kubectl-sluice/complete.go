package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	noFiles  = cobra.ShellCompDirectiveNoFileComp
	noSpaces = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
)

// A completion returns the possible values of an argument. typed is the beginning of the argument,
// which the user has typed.
type completion func(
	cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective)

// flagCompletions returns the completions of the values of flags, by the flags' names. The values
// of other flags are not completed.
func (o *options) flagCompletions() map[string]completion {
	return map[string]completion{
		"namespace": o.completeNamespace, "agent-namespace": o.completeNamespace,
		"selector": o.completeSelector,
	}
}

// completeVerb completes the arguments of a verb. Cobra does not parse the flags of verbs, so
// completeVerb also completes the values of flags.
func (o *options) completeVerb(
	cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	flags := cmd.Root().PersistentFlags()
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "-") {
		name := strings.TrimLeft(args[n], "-")
		if len(name) == 1 {
			if short := flags.ShorthandLookup(name); short != nil {
				name = short.Name
			}
		}
		if complete := o.flagCompletions()[name]; complete != nil {
			return complete(cmd, args[:n], typed)
		}
	}
	return o.completePod(cmd, args, typed)
}

// completePod completes an argument that names pods.
func (o *options) completePod(
	cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	c, current, rest, err := o.connectFor(cmd, args)
	if err != nil || len(rest) > 0 || o.selector != "" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx := cmd.Context()
	kindWords := func(prefix string) []string {
		var words []string
		for kind := range kinds {
			words = append(words, prefix+kind+"/")
		}
		slices.Sort(words)
		return words
	}
	switch parts := strings.Split(typed, "/"); {
	case len(parts) == 1:
		words := slices.Concat(c.names(ctx, podKind, current, ""), c.namespaces(ctx, "/"),
			kindWords(""))
		return words, noSpaces
	case len(parts) == 2 && kindOf(parts[0]) != "":
		return c.names(ctx, kindOf(parts[0]), current, parts[0]+"/"), noFiles
	case len(parts) == 2:
		prefix := parts[0] + "/"
		return slices.Concat(c.names(ctx, podKind, parts[0], prefix), kindWords(prefix)), noSpaces
	case len(parts) == 3 && kindOf(parts[1]) != "":
		return c.names(ctx, kindOf(parts[1]), parts[0], parts[0]+"/"+parts[1]+"/"), noFiles
	}
	return nil, noFiles
}

// completeNamespace completes the name of a namespace.
func (o *options) completeNamespace(
	cmd *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	c, _, _, err := o.connectFor(cmd, args)
	if err != nil {
		return nil, noFiles
	}
	return c.namespaces(cmd.Context(), ""), noFiles
}

// completeSelector completes a label selector with the labels of the pods in the namespace. The
// text before the last comma is kept.
func (o *options) completeSelector(
	cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	c, current, _, err := o.connectFor(cmd, args)
	if err != nil {
		return nil, noFiles
	}
	prefix := typed[:strings.LastIndex(typed, ",")+1]
	var words []string
	for _, item := range c.items(cmd.Context(), podKind, current) {
		for key, value := range item.Labels {
			words = append(words, prefix+key+"="+value)
		}
	}
	slices.Sort(words)
	return slices.Compact(words), noSpaces
}

// connectFor parses the flags among the arguments before the completed one. It returns a
// connection, the current namespace and the arguments that are not flags.
func (o *options) connectFor(
	cmd *cobra.Command, args []string,
) (c cluster, namespace string, rest []string, err error) {
	own, rest, err := split(cmd, args)
	if err != nil {
		return c, "", nil, err
	}
	if err := cmd.Root().PersistentFlags().Parse(own); err != nil {
		return c, "", nil, err
	}
	if c, err = o.connect(); err != nil {
		return c, "", nil, err
	}
	namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace()
	return c, namespace, rest, err
}

// names returns the names of the objects of a kind in a namespace, with a prefix.
func (c cluster) names(ctx context.Context, kind, namespace, prefix string) []string {
	var names []string
	for _, item := range c.items(ctx, kind, namespace) {
		names = append(names, prefix+item.Name)
	}
	return names
}

// namespaces returns the names of all namespaces, with a suffix.
func (c cluster) namespaces(ctx context.Context, suffix string) []string {
	var list corev1.NamespaceList
	if err := c.list(ctx, "namespaces", "", metav1.ListOptions{}, &list); err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name + suffix
	}
	return names
}

// items returns the metadata of the objects of a kind in a namespace. It returns nil after an
// error, because a completion cannot show errors.
func (c cluster) items(
	ctx context.Context, kind, namespace string,
) []metav1.PartialObjectMetadata {
	resource := kinds[kind].resource
	client, err := c.client(resource.GroupVersion())
	if err != nil {
		return nil
	}
	data, err := client.Get().Namespace(namespace).Resource(resource.Resource).Do(ctx).Raw()
	if err != nil {
		return nil
	}
	var list metav1.PartialObjectMetadataList
	if json.Unmarshal(data, &list) != nil {
		return nil
	}
	return list.Items
}
