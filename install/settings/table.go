package settings

import (
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// ofRedirection returns the setting of a parameter of package rules/parameter. field is the
// parameter's field in the plugin's configuration. extraHelp is appended to the help.
func ofRedirection(field, example, extraHelp string) Setting {
	p := parameter.OfConfig(field)
	s := Setting{
		Env: p.AgentVariable, Helm: p.Helm, Kind: kindOf(p), Default: p.Default,
		Example: example, Help: p.Help + extraHelp,
	}
	if p.Kind == parameter.Bool {
		s.Default = p.DefaultText()
	}
	return s
}

// ofPlugin returns s with the description of a field of the plugin's configuration as help, and
// with the field's default unless s has one. It is for fields that are not parameters of a
// redirection.
func ofPlugin(field string, s Setting) Setting {
	f := config.FieldNamed(field)
	s.Help = f.Meaning
	if s.Default == "" && f.Default != config.NoDefault {
		s.Default = f.Default
	}
	return s
}

// installSettings are the settings of the installation of the plugin on the node.
var installSettings = []Setting{
	{
		Env: "CNI_CONF_NAME", Helm: "cniConfFileName", Kind: FileName,
		Example: "10-calico.conflist",
		Help: "configuration file to which the plugin is added, or with " +
			"CHAINED_CNI_PLUGIN=false the file to create; if empty, the first valid file, or " +
			"YYY-sluice-cni.conf",
	},
	{
		Env: "CHAINED_CNI_PLUGIN", Helm: "chained", Kind: Bool, Default: "true", Example: "false",
		Help: "add the plugin to the node's plugin chain; false creates a separate configuration " +
			"for Multus",
	},
	{
		Env: "ISTIO_OWNED_CNI_CONFIG", Helm: "istioOwnedCNIConfig", Kind: Bool, Default: "false",
		Example: "true",
		Help: "do not change the primary configuration; instead keep a copy of it with the plugin " +
			"added, under a file name that sorts before the primary's",
	},
	{
		Env: "ISTIO_OWNED_CNI_CONFIG_FILENAME", Helm: "istioOwnedCNIConfigFileName", Kind: ListName,
		Default: "02-istio-cni.conflist", Example: "01-mesh.conflist",
		Help: "file name of the copy that ISTIO_OWNED_CNI_CONFIG=true creates",
	},
	{
		Env: "CNI_CONF_GROUP_READ", Kind: Bool, Default: "false", Example: "true",
		Help: "make created configuration files readable by their group (mode 0640 instead of " +
			"0600)",
	},
	{
		Env: "KUBECONFIG_MODE", Kind: Mode, Default: "0600", Example: "0640",
		Help: "mode of the plugin's kubeconfig, octal",
	},
	{
		Env: "KUBE_CA_FILE", Kind: Path, Example: "/etc/ca.crt",
		Help: "certificate authority in the plugin's kubeconfig; " +
			"if empty, the certificate authority of the service account",
	},
	{
		Env: "SKIP_TLS_VERIFY", Kind: Bool, Default: "false", Example: "true",
		Help: "do not verify the API server's certificate in the plugin",
	},
	{
		Env: "SLUICE_RESYNC_INTERVAL", Helm: "resyncInterval", Kind: Duration, Default: "10s",
		Example: "1m",
		Help:    "interval of full checks of the node, in addition to checks after file events",
	},
	{
		Env: "SLUICE_UNINSTALL_TIMEOUT", Helm: "uninstallTimeout", Kind: Duration, Default: "15s",
		Example: "40s",
		Help: "maximum time that uninstallation waits for sandboxes that need the plugin; " +
			"at least 5 s less than terminationGracePeriodSeconds, 15 s in ambient mode",
	},
	{
		Env: "SLUICE_STARTUP_TAINT", Helm: "startupTaint", Kind: TaintKey,
		Example: "cni.istio.io/not-ready",
		Help: "key of the taint that the agent removes when ADD works on the node; " +
			"if empty, none",
	},
}

// pluginSettings are the settings of the plugin, except the settings of ambient mode
// (ambientSettings).
var pluginSettings = []Setting{
	ofPlugin("exclude_namespaces", Setting{
		Env: "EXCLUDE_NAMESPACES", Helm: "excludeNamespaces", Kind: Names, Chart: "kube-system",
		Example: "kube-system,backup",
	}),
	ofPlugin("enablement_selectors", Setting{
		Env: "SLUICE_ENABLEMENT_SELECTORS", Helm: "enablementSelectors", Kind: JSONList,
		Default: "[]", Example: `[{"podSelector":{"matchLabels":{"mesh":"on"}}}]`,
	}),
	ofRedirection("backend", "nft", "; global.nativeNftables means nft"),
	ofRedirection("strict_istio", "true", ""),
	ofRedirection("deviations_off", "nat-first", ""),
	ofRedirection("counters", "true", ""),
	ofPlugin("unreadable_pods", Setting{
		Env: "SLUICE_UNREADABLE_PODS", Helm: "unreadablePods", Kind: Unreadable, Example: "skip",
	}),
	ofPlugin("api_budget", Setting{
		Env: "SLUICE_API_BUDGET", Helm: "apiBudget", Kind: PluginTime, Example: "20s",
	}),
	ofPlugin("api_try_timeout", Setting{
		Env: "SLUICE_API_TRY_TIMEOUT", Helm: "apiTryTimeout", Kind: PluginTime, Example: "5s",
	}),
	{
		Env: "SLUICE_SERVE", Helm: "serve.enabled", Kind: Bool, Default: "true", Example: "false",
		Help: "serve the node's pods to the plugin over a socket, which saves API requests",
	},
}
