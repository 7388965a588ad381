// Package rbactest contains the permissions that the chart gives to the agent, for the tests of the
// chart and of the agent.
package rbactest

import (
	"slices"
	"strings"
)

// A Configuration is a configuration of the chart.
type Configuration struct {
	Reason string // why the agent needs the permissions
	Values string // YAML
	// Environment is the agent's environment for the values, as far as it decides which permissions
	// the agent needs; nil if another configuration has the same features.
	Environment map[string]string
	// Permissions is a line for each rule of the agent's roles, such as "pods: get list", with the
	// names of objects in parentheses after the resource.
	Permissions []string
}

// Kinds returns the permissions without names of objects, each as a verb and a resource, such as
// "get pods".
func (c *Configuration) Kinds() []string {
	var kinds []string
	for _, line := range c.Permissions {
		resource, verbs, _ := strings.Cut(line, ": ")
		resource, _, _ = strings.Cut(resource, " (")
		for verb := range strings.FieldsSeq(verbs) {
			kinds = append(kinds, verb+" "+resource)
		}
	}
	return kinds
}

// common contains the permissions of the default configuration.
var common = []string{
	"pods: get list watch", "nodes: get", "events: create patch",
	"daemonsets (sluice-node): get list watch", "serviceaccounts/token (sluice): create",
}

func with(lines ...string) []string { return append(slices.Clone(common), lines...) }

func replaced(line string, by ...string) []string {
	return append(slices.DeleteFunc(slices.Clone(common), func(l string) bool { return l == line }), by...)
}

// Configurations returns configurations of the features that the permissions may depend on.
func Configurations() []Configuration {
	type environment = map[string]string
	return []Configuration{
		{"repair of rules needs no other permissions", "{}", environment{}, common},
		{
			"deleting", "repair: {repairPods: false, deletePods: true}",
			environment{"REPAIR_REPAIR_PODS": "false", "REPAIR_DELETE_PODS": "true"},
			with("pods: delete"),
		},
		{
			"labeling", "repair: {repairPods: false, labelPods: true}",
			environment{"REPAIR_REPAIR_PODS": "false", "REPAIR_LABEL_PODS": "true"},
			with("pods/status: patch"),
		},
		{
			"deletion of pods that cannot be repaired",
			"repair: {deletePods: true, labelPods: true}", nil, with("pods: delete", "pods/status: patch"),
		},
		{
			"deletion, and labeling of static pods, which cannot be deleted",
			"repair: {repairPods: false, deletePods: true, labelPods: true}",
			environment{"REPAIR_REPAIR_PODS": "false", "REPAIR_DELETE_PODS": "true", "REPAIR_LABEL_PODS": "true"},
			with("pods: delete", "pods/status: patch"),
		},
		{
			"no repair, no deletion",
			"repair: {enabled: false, repairPods: false, deletePods: true}",
			environment{"REPAIR_ENABLED": "false", "REPAIR_REPAIR_PODS": "false", "REPAIR_DELETE_PODS": "true"},
			common,
		},
		{
			"namespace selectors read namespaces",
			"enablementSelectors: [{podSelector: {}}, {namespaceSelector: {}}]",
			environment{"SLUICE_ENABLEMENT_SELECTORS": `[{"podSelector":{}},{"namespaceSelector":{}}]`},
			with("namespaces: get list watch"),
		},
		{
			"pod selectors need no other permissions",
			"enablementSelectors: [{podSelector: {matchLabels: {a: b}}}]", nil, common,
		},
		{
			"ambient mode annotates pods and reads namespaces",
			"{profile: ambient, audit: {enabled: false}, repair: {enabled: false}}",
			environment{"AMBIENT_ENABLED": "true", "SLUICE_AUDIT": "false", "REPAIR_ENABLED": "false"},
			with("pods/status: patch", "namespaces: get list watch"),
		},
		{
			"ambient mode with pod selectors only",
			"ambient: {enabled: true, enablementSelectors: [{podSelector: {matchLabels: {a: b}}}]}", nil,
			with("pods/status: patch"),
		},
		{
			"annotating and labeling use the same permission",
			"{profile: ambient, repair: {repairPods: false, labelPods: true}}", nil,
			with("pods/status: patch", "namespaces: get list watch"),
		},
		{
			"ambient selectors without ambient mode need no permission",
			"ambient: {enabled: false, enablementSelectors: [{namespaceSelector: {}}]}", nil, common,
		},
		{
			"the start-up taint", "startupTaint: cni.istio.io/not-ready",
			environment{"SLUICE_STARTUP_TAINT": "cni.istio.io/not-ready"},
			replaced("nodes: get", "nodes: get patch"),
		},
		{
			"plugin only: get pods and namespaces",
			"{serve: {enabled: false}, audit: {enabled: false}, repair: {enabled: false}, " +
				"enablementSelectors: [{namespaceSelector: {}}]}",
			environment{
				"SLUICE_SERVE": "false", "SLUICE_AUDIT": "false", "REPAIR_ENABLED": "false",
				"SLUICE_ENABLEMENT_SELECTORS": `[{"namespaceSelector":{}}]`,
			},
			replaced("pods: get list watch", "pods: get", "namespaces: get"),
		},
		{"serving watches pods", "{audit: {enabled: false}, repair: {enabled: false}}", nil, common},
		{"audit watches pods", "{serve: {enabled: false}, repair: {enabled: false}}", nil, common},
		{"repair watches pods", "{serve: {enabled: false}, audit: {enabled: false}}", nil, common},
	}
}
