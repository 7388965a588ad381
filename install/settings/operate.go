package settings

var operateSettings = []Setting{
	{
		Env: "SLUICE_LOG_LEVEL", Helm: "logging.level", Kind: Level, Default: "info", Example: "debug",
		Help: "least level that agent and plugin log; global.logging.level counts where logging.level is empty",
	},
	{
		Env: "SLUICE_LOG_JSON", Helm: "global.logAsJson", Kind: Bool, Default: "false", Example: "true", Help: "log lines are JSON",
	},
	{
		Env: "MONITORING_PORT", Helm: "monitoringPort", Kind: Port, Default: MonitoringPort, Example: "9090",
		Help: "port of /metrics; 0 for none",
	},
	{
		Env: "SLUICE_HEALTH_PORT", Helm: "healthPort", Kind: Port, Default: HealthPort, Example: "8001",
		Help: "port of /readyz and /healthz",
	},
	{
		Env: "NODE_NAME", Kind: Text, Required: true, Example: "node-1", Help: "name of the node, from the pod",
	},
	{
		Env: "POD_NAME", Kind: Text, Required: true, Example: "sluice-node-x7k2p", Help: "name of the agent's pod, from the pod",
	},
	{
		Env: "POD_NAMESPACE", Kind: Text, Required: true, Example: "istio-system", Help: "namespace of the agent, from the pod",
	},
	{
		Env: "SLUICE_NODE_IP", Fixed: true, Kind: Text, Example: "10.0.0.7",
		Help: "addresses of the node, from the pod: probes from there have places of their own on the ports",
	},
	{
		Env: "SLUICE_DAEMONSET", Fixed: true, Kind: Text, Default: DaemonSet, Example: "mesh-node",
		Help: "name of the agent's DaemonSet: its pods are never redirected, and its deletion means uninstalling",
	},
}

// placeSettings are where things are: in the container, and for messages and the plugin on the
// node.
var placeSettings = []Setting{
	{
		Env: "CNI_AGENT_RUN_DIR", Fixed: true, Kind: Path, Default: RunDir, Example: "/run/mesh",
		Help: "directory that agent and plugin share; the same path in the container and on the node",
	},
	{
		Env: "SLUICE_STATE_DIR", Fixed: true, Kind: Path, Default: StateDir, Example: "/var/lib/mesh",
		Help: "directory of what must outlast a reboot: what uninstalling will restore; the same path in the container and on the node",
	},
	{
		Env: "MOUNTED_CNI_NET_DIR", Fixed: true, Kind: Path, Default: MountedNetDir, Example: "/mnt/net.d",
		Help: "the node's configuration directory in the container",
	},
	{
		Env: "SLUICE_MOUNTED_BIN_DIR", Fixed: true, Kind: Path, Default: MountedBinDir, Example: "/mnt/bin",
		Help: "the node's plugin directory in the container",
	},
	{
		Env: "SLUICE_MOUNTED_NETNS_DIR", Fixed: true, Kind: Path, Default: MountedNetns, Example: "/mnt/netns",
		Help: "the directory of the node's network namespaces in the container",
	},
	{
		Env: "SLUICE_MOUNTED_PROC_DIR", Fixed: true, Kind: Path, Default: MountedProc, Example: "/mnt/proc",
		Help: "the node's /proc in the container",
	},
	{
		Env: "SLUICE_MOUNTED_CACHE_DIR", Fixed: true, Kind: Path, Default: MountedCache, Example: "/mnt/cache",
		Help: "the directory in the container where the runtime caches results of plugins, below results or cache/results",
	},
	{
		Env: "SLUICE_SOURCE_DIR", Fixed: true, Kind: Path, Default: SourceDir, Example: "/usr/libexec/cni",
		Help: "directory in the image of what is installed",
	},
	{
		Env: "SLUICE_HOST_BIN_DIR", Helm: "cniBinDir", Kind: Path, Default: "/opt/cni/bin", Example: "/usr/libexec/cni",
		Help: "plugin directory on the node; by platform",
	},
	{
		Env: "SLUICE_HOST_NET_DIR", Helm: "cniConfDir", Kind: Path, Default: "/etc/cni/net.d", Example: "/etc/kubernetes/cni/net.d",
		Help: "configuration directory on the node; by platform",
	},
	{
		Env: "SLUICE_HOST_CACHE_DIR", Helm: "cniCacheDir", Kind: Path, Default: "/var/lib/cni", Example: "/run/cni",
		Help: "directory on the node where the runtime caches results of plugins: these name the plugins that sandboxes still need",
	},
	{
		Env: "SLUICE_HOST_NETNS_DIR", Helm: "cniNetnsDir", Kind: Path, Default: "/var/run/netns", Example: "/var/run/docker/netns",
		Help: "directory on the node where the runtime mounts network namespaces; by platform",
	},
}
