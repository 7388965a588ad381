package settings

import "github.com/sluice-mesh/sluice/rules/parameter"

// ofCatalogue returns the setting of a parameter of the catalogue, by its field in the plugin's
// configuration.
func ofCatalogue(config, example, more string) Setting {
	p := parameter.OfConfig(config)
	s := Setting{
		Env: p.AgentVariable, Helm: p.Helm, Kind: ofParameter(p), Default: p.Default,
		Example: example, Help: p.Help + more,
	}
	if p.Kind == parameter.Bool {
		s.Default = p.DefaultText()
	}
	return s
}

var installSettings = []Setting{
	{
		Env: "CNI_CONF_NAME", Helm: "cniConfFileName", Kind: FileName, Example: "10-calico.conflist",
		Help: "configuration file that gets our element, or the name of our own where it stands alone; the first valid one if empty",
	},
	{
		Env: "CHAINED_CNI_PLUGIN", Helm: "chained", Kind: Bool, Default: "true", Example: "false",
		Help: "append to the node's plugin chain; false writes a configuration of its own, for Multus",
	},
	{
		Env: "ISTIO_OWNED_CNI_CONFIG", Helm: "istioOwnedCNIConfig", Kind: Bool, Default: "false", Example: "true",
		Help: "leave the primary configuration alone, and keep a copy with our element that sorts before it",
	},
	{
		Env: "ISTIO_OWNED_CNI_CONFIG_FILENAME", Helm: "istioOwnedCNIConfigFileName", Kind: ListName,
		Default: "02-istio-cni.conflist", Example: "01-mesh.conflist", Help: "name of that copy",
	},
	{
		Env: "CNI_CONF_GROUP_READ", Kind: Bool, Default: "false", Example: "true",
		Help: "configuration files that we create are readable for their group (0640 instead of 0600)",
	},
	{
		Env: "KUBECONFIG_MODE", Kind: Mode, Default: "0600", Example: "0640", Help: "mode of the plugin's kubeconfig, octal",
	},
	{
		Env: "KUBE_CA_FILE", Kind: Path, Example: "/etc/ca.crt",
		Help: "certificate authority of the API server for the plugin's kubeconfig; the service account's if empty",
	},
	{
		Env: "SKIP_TLS_VERIFY", Kind: Bool, Default: "false", Example: "true",
		Help: "the plugin does not verify the API server's certificate",
	},
	{
		Env: "SLUICE_RESYNC_INTERVAL", Helm: "resyncInterval", Kind: Duration, Default: "10s", Example: "1m",
		Help: "how often the node is compared with what it should be when no event says so",
	},
	{
		Env: "SLUICE_UNINSTALL_TIMEOUT", Helm: "uninstallTimeout", Kind: Duration, Default: "20s", Example: "40s",
		Help: "how long uninstalling waits until no sandbox needs the plugin; below terminationGracePeriodSeconds",
	},
	{
		Env: "SLUICE_STARTUP_TAINT", Helm: "startupTaint", Kind: TaintKey, Example: "cni.istio.io/not-ready",
		Help: "key of the taint that is removed from the node once an ADD works there; none if empty",
	},
}

var pluginSettings = []Setting{
	{
		Env: "EXCLUDE_NAMESPACES", Helm: "excludeNamespaces", Kind: Names, Chart: "kube-system", Example: "kube-system,backup",
		Help: "namespaces whose pods are left alone",
	},
	{
		Env: "SLUICE_ENABLEMENT_SELECTORS", Helm: "enablementSelectors", Kind: JSONList, Default: "[]",
		Example: `[{"podSelector":{"matchLabels":{"mesh":"on"}}}]`,
		Help:    "only pods that one of these selectors matches are redirected; all if empty",
	},
	ofCatalogue("backend", "nft", "; global.nativeNftables means nft"),
	ofCatalogue("strict_istio", "true", ""),
	ofCatalogue("deviations_off", "nat-first", ""),
	{
		Env: "SLUICE_UNREADABLE_PODS", Helm: "unreadablePods", Kind: Unreadable, Default: "fail", Example: "skip",
		Help: "a pod that cannot be read does not start, or starts without redirection",
	},
	{
		Env: "SLUICE_API_BUDGET", Helm: "apiBudget", Kind: PluginTime, Default: "10s", Example: "20s",
		Help: "time for all attempts of the plugin to read a pod together",
	},
	{
		Env: "SLUICE_API_TRY_TIMEOUT", Helm: "apiTryTimeout", Kind: PluginTime, Default: "3s", Example: "5s",
		Help: "time for one attempt",
	},
	{
		Env: "SLUICE_SERVE", Helm: "serve.enabled", Kind: Bool, Default: "true", Example: "false",
		Help: "answer the plugin from this node's pods over a socket, so that it needs no API call",
	},
}
