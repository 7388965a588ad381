package settings

// repairSettings are the settings of repairs, audits, the counters of rules and the search for
// network namespaces. Settings of istio-cni's repair have the names of Istio's variables.
var repairSettings = []Setting{
	{
		Env: "REPAIR_ENABLED", Helm: "repair.enabled", Kind: Bool, Default: "true",
		Example: "false",
		Help: "repair, delete or label pods that started without the plugin, as the other " +
			"settings of repair allow",
	},
	{
		Env: "REPAIR_REPAIR_PODS", Helm: "repair.repairPods", Kind: Bool, Default: "true",
		Example: "false",
		Help: "redirect a pod in place if it started without the plugin; takes precedence over " +
			"deleting and labeling",
	},
	{
		Env: "REPAIR_DELETE_PODS", Helm: "repair.deletePods", Kind: Bool, Default: "false",
		Example: "true",
		Help: "delete a pod that started without the plugin if its validation fails and repair " +
			"in place is disabled, fails or does not help; takes precedence over labeling",
	},
	{
		Env: "REPAIR_LABEL_PODS", Helm: "repair.labelPods", Kind: Bool, Default: "false",
		Example: "true",
		Help: "label a pod that started without the plugin if its validation fails and repair " +
			"in place is disabled, fails or does not help; with REPAIR_DELETE_PODS only static pods",
	},
	{
		Env: "REPAIR_BROKEN_POD_LABEL_KEY", Helm: "repair.brokenPodLabelKey", Kind: QualifiedName,
		Default: "cni.istio.io/uninitialized", Example: "mesh/broken",
		Help: "key of the label that REPAIR_LABEL_PODS adds",
	},
	{
		Env: "REPAIR_BROKEN_POD_LABEL_VALUE", Helm: "repair.brokenPodLabelValue", Kind: LabelValue,
		Default: "true", Example: "yes",
		Help: "value of the label that REPAIR_LABEL_PODS adds",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_NAME", Helm: "repair.initContainerName", Kind: ContainerName,
		Default: "istio-validation",
		Example: "mesh-validation",
		Help:    "init container whose failure indicates missing redirection",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE", Kind: Text, Example: "validation failed",
		Help: "required termination message of that container; if empty, any",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_EXIT_CODE", Kind: ExitCode, Default: "126", Example: "1",
		Help: "required exit code of that container; if 0, any",
	},
	{
		Env: "REPAIR_SIDECAR_ANNOTATION", Kind: QualifiedName, Default: "sidecar.istio.io/status",
		Example: "mesh/status",
		Help:    "annotation of injected pods",
	},
	{
		Env: "REPAIR_LABEL_SELECTORS", Kind: LabelSelector, Example: "tier=web",
		Help: "label selector of the pods to repair; if empty, all",
	},
	{
		Env: "REPAIR_FIELD_SELECTORS", Kind: FieldSelector, Example: "metadata.namespace=web",
		Help: "field selector of the pods to repair; if empty, all",
	},
	{
		Env: "SLUICE_AUDIT", Helm: "audit.enabled", Kind: Bool, Default: "true", Example: "false",
		Help: "compare the rules of running pods with the desired rules",
	},
	{
		Env: "SLUICE_AUDIT_REPAIR", Helm: "audit.repair", Kind: Bool, Default: "true",
		Example: "false",
		Help:    "repair differences in place; false only reports them",
	},
	{
		Env: "SLUICE_AUDIT_END_CONNECTIONS", Helm: "audit.endConnections", Kind: Bool,
		Default: "true", Example: "false",
		Help: "end connections that bypass the proxy because they were opened before a repair; " +
			"false only counts them",
	},
	{
		Env: "SLUICE_AUDIT_INTERVAL", Helm: "audit.interval", Kind: Duration, Default: "1m",
		Example: "5m",
		Help:    "interval of audits of all pods, in addition to audits after events",
	},
	{
		Env: "SLUICE_COUNTER_METRICS", Helm: "counterMetrics.per", Kind: CounterMetrics,
		Default: "namespace", Example: "pod",
		Help: "series of the counters of rules (sluice_rule_packets_total): of each namespace, " +
			"of the pods with the most packets, or none",
	},
	{
		Env: "SLUICE_COUNTER_METRICS_PODS", Helm: "counterMetrics.topPods", Kind: PodCount,
		Default: "20", Example: "50",
		Help: "maximum number of the node's pods with series, if SLUICE_COUNTER_METRICS=pod",
	},
	{
		Env: "SLUICE_SEARCH_PROC", Helm: "searchProc", Kind: Bool, Default: "true",
		Example: "false",
		Help: "search /proc for network namespaces of pods that are neither in the records of ADD " +
			"nor in the runtime's cache of results",
	},
}
