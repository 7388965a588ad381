package settings

// operateSettings are the settings of the log and the ports, and the identities of the agent's pod,
// node and DaemonSet.
var operateSettings = []Setting{
	{
		Env: "SLUICE_LOG_LEVEL", Helm: "logging.level", Kind: Level, Default: "info",
		Example: "debug",
		Help: "minimum log level of the agent and the plugin; " +
			"global.logging.level if logging.level is empty",
	},
	{
		Env: "SLUICE_LOG_JSON", Helm: "global.logAsJson", Kind: Bool, Default: "false",
		Example: "true", Help: "log in JSON",
	},
	{
		Env: "MONITORING_PORT", Helm: "monitoringPort", Kind: OptionalPort, Default: MonitoringPort,
		Example: "9090",
		Help:    "port of /metrics; 0 disables it",
	},
	{
		Env: "SLUICE_HEALTH_PORT", Helm: "healthPort", Kind: Port, Default: HealthPort,
		Example: "8001",
		Help:    "port of /readyz and /healthz",
	},
	{
		Env: "NODE_NAME", Kind: Text, Required: true, Example: "node-1",
		Help: "name of the node (downward API)",
	},
	{
		Env: "POD_NAME", Kind: Text, Required: true, Example: "sluice-node-x7k2p",
		Help: "name of the agent's pod (downward API)",
	},
	{
		Env: "POD_NAMESPACE", Kind: Text, Required: true, Example: "istio-system",
		Help: "namespace of the agent (downward API)",
	},
	{
		Env: "SLUICE_NODE_IP", Fixed: true, Kind: Text, Example: "10.0.0.7",
		Help: "addresses of the node (downward API); connections from them to both ports have " +
			"separate limits",
	},
	{
		Env: "SLUICE_DAEMONSET", Fixed: true, Kind: Text, Default: DaemonSet, Example: "mesh-node",
		Help: "name of the agent's DaemonSet; its pods are not redirected, and its deletion " +
			"triggers uninstallation",
	},
}

// pathSettings are the paths in the container, and the paths on the node for messages and for the
// plugin.
var pathSettings = []Setting{
	{
		Env: "CNI_AGENT_RUN_DIR", Fixed: true, Kind: Path, Default: RunDir, Example: "/run/mesh",
		Help: "directory shared by agent and plugin; the same path in the container and on the " +
			"node",
	},
	{
		Env: "SLUICE_STATE_DIR", Fixed: true, Kind: Path, Default: StateDir,
		Example: "/var/lib/mesh",
		Help: "directory of the state that uninstallation restores, kept across reboots; " +
			"the same path in the container and on the node",
	},
	{
		Env: "MOUNTED_CNI_NET_DIR", Fixed: true, Kind: Path, Default: MountedNetDir,
		Example: "/mnt/net.d",
		Help:    "mount point of the node's configuration directory",
	},
	{
		Env: "SLUICE_MOUNTED_BIN_DIR", Fixed: true, Kind: Path, Default: MountedBinDir,
		Example: "/mnt/bin",
		Help:    "mount point of the node's plugin directory",
	},
	{
		Env: "SLUICE_MOUNTED_NETNS_DIR", Fixed: true, Kind: Path, Default: MountedNetns,
		Example: "/mnt/netns",
		Help:    "mount point of the node's directory of network namespaces",
	},
	{
		Env: "SLUICE_MOUNTED_PROC_DIR", Fixed: true, Kind: Path, Default: MountedProc,
		Example: "/mnt/proc",
		Help:    "mount point of the node's /proc",
	},
	{
		Env: "SLUICE_MOUNTED_CACHE_DIR", Fixed: true, Kind: Path, Default: MountedCache,
		Example: "/mnt/cache",
		Help: "mount point of the runtime's cache of plugin results, which contains results " +
			"or cache/results",
	},
	{
		Env: "SLUICE_SOURCE_DIR", Fixed: true, Kind: Path, Default: SourceDir,
		Example: "/usr/libexec/cni",
		Help:    "directory of the plugin in the image",
	},
	{
		Env: "SLUICE_HOST_BIN_DIR", Helm: "cniBinDir", Kind: Path, Default: "/opt/cni/bin",
		Example: "/usr/libexec/cni",
		Help:    "plugin directory on the node; the default depends on the platform",
	},
	{
		Env: "SLUICE_HOST_NET_DIR", Helm: "cniConfDir", Kind: Path, Default: "/etc/cni/net.d",
		Example: "/etc/kubernetes/cni/net.d",
		Help:    "configuration directory on the node; the default depends on the platform",
	},
	{
		Env: "SLUICE_HOST_CACHE_DIR", Helm: "cniCacheDir", Kind: Path, Default: "/var/lib/cni",
		Example: "/run/cni",
		Help: "directory on the node where the runtime caches results of plugins, which show " +
			"the sandboxes that need the plugin",
	},
	{
		Env: "SLUICE_HOST_NETNS_DIR", Helm: "cniNetnsDir", Kind: Path, Default: "/var/run/netns",
		Example: "/var/run/docker/netns",
		Help: "directory on the node where the runtime mounts network namespaces; " +
			"the default depends on the platform",
	},
}
