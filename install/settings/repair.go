package settings

var repairSettings = []Setting{
	{
		Env: "REPAIR_ENABLED", Helm: "repair.enabled", Kind: Bool, Default: "true", Example: "false",
		Help: "look for pods that started before the plugin was there",
	},
	{
		Env: "REPAIR_REPAIR_PODS", Helm: "repair.repairPods", Kind: Bool, Default: "true", Example: "false",
		Help: "give such a pod its redirect as soon as it is seen; goes before delete and label",
	},
	{
		Env: "REPAIR_DELETE_PODS", Helm: "repair.deletePods", Kind: Bool, Default: "false", Example: "true",
		Help: "delete such a pod if its validation fails, and if repair is off or does not help; goes before label",
	},
	{
		Env: "REPAIR_LABEL_PODS", Helm: "repair.labelPods", Kind: Bool, Default: "false", Example: "true",
		Help: "label such a pod if its validation fails, and if repair is off or does not help",
	},
	{
		Env: "REPAIR_BROKEN_POD_LABEL_KEY", Helm: "repair.brokenPodLabelKey", Kind: Text,
		Default: "cni.istio.io/uninitialized", Example: "mesh/broken", Help: "key of the label",
	},
	{
		Env: "REPAIR_BROKEN_POD_LABEL_VALUE", Helm: "repair.brokenPodLabelValue", Kind: Text, Default: "true", Example: "yes",
		Help: "value of the label",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_NAME", Helm: "repair.initContainerName", Kind: Text, Default: "istio-validation",
		Example: "mesh-validation", Help: "init container whose failure shows a missing redirect",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE", Kind: Text, Example: "validation failed",
		Help: "termination message that it must have left; any if empty",
	},
	{
		Env: "REPAIR_INIT_CONTAINER_EXIT_CODE", Kind: Number, Default: "126", Example: "1",
		Help: "exit code that it must have left; any if 0",
	},
	{
		Env: "REPAIR_SIDECAR_ANNOTATION", Kind: Text, Default: "sidecar.istio.io/status", Example: "mesh/status",
		Help: "annotation that pods of the mesh have",
	},
	{
		Env: "REPAIR_LABEL_SELECTORS", Kind: Text, Example: "tier=web", Help: "label selector of pods that may be repaired; all if empty",
	},
	{
		Env: "REPAIR_FIELD_SELECTORS", Kind: Text, Example: "metadata.namespace=web",
		Help: "field selector of pods that may be repaired; all if empty",
	},
	{
		Env: "SLUICE_AUDIT", Helm: "audit.enabled", Kind: Bool, Default: "true", Example: "false",
		Help: "compare the rules of running pods with what they should be",
	},
	{
		Env: "SLUICE_AUDIT_REPAIR", Helm: "audit.repair", Kind: Bool, Default: "true", Example: "false",
		Help: "mend what differs in place; otherwise it is only reported",
	},
	{
		Env: "SLUICE_AUDIT_END_CONNECTIONS", Helm: "audit.endConnections", Kind: Bool, Default: "true", Example: "false",
		Help: "end connections that bypass the proxy since they were opened before a repair; otherwise they are only counted",
	},
	{
		Env: "SLUICE_AUDIT_INTERVAL", Helm: "audit.interval", Kind: Duration, Default: "1m", Example: "5m",
		Help: "how often all pods are audited when no event says so",
	},
	{
		Env: "SLUICE_SEARCH_PROC", Helm: "searchProc", Kind: Bool, Default: "true", Example: "false",
		Help: "look for a pod's network namespace in /proc where neither what ADD stored nor the runtime's directory shows it",
	},
}
