package agent

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/settings"
)

// NodeSettings returns the desired state of the node. noop is the path of the no-op executable; see
// [node.Settings].
func NodeSettings(v settings.Values, element json.RawMessage, noop string) node.Settings {
	return node.Settings{
		CNIBinDir:                   v.Text("SLUICE_MOUNTED_BIN_DIR"),
		CNIConfDir:                  v.Text("MOUNTED_CNI_NET_DIR"),
		RuntimeRoot:                 runtimeRoot(v),
		NodeCNIBinDir:               v.Text("SLUICE_HOST_BIN_DIR"),
		NodeCNIConfDir:              v.Text("SLUICE_HOST_NET_DIR"),
		RunDir:                      v.Text("CNI_AGENT_RUN_DIR"),
		NodeRunDir:                  v.Text("CNI_AGENT_RUN_DIR"),
		CNIConfFileName:             v.Text("CNI_CONF_NAME"),
		Chained:                     v.Bool("CHAINED_CNI_PLUGIN"),
		IstioOwnedCNIConfig:         v.Bool("ISTIO_OWNED_CNI_CONFIG"),
		IstioOwnedCNIConfigFileName: v.Text("ISTIO_OWNED_CNI_CONFIG_FILENAME"),
		CNIConfGroupRead:            v.Bool("CNI_CONF_GROUP_READ"),
		Type:                        pluginType,
		Element:                     element,
		Binaries: map[string]string{
			pluginType: filepath.Join(v.Text("SLUICE_SOURCE_DIR"), pluginType),
		},
		Noop:           noop,
		StateDir:       v.Text("SLUICE_STATE_DIR"),
		ResultDirs:     resultDirs(v),
		AgentNamespace: v.Text("POD_NAMESPACE"),
		AgentDaemonSet: v.Text("SLUICE_DAEMONSET"),
		Resync:         v.Duration("SLUICE_RESYNC_INTERVAL"),
	}
}

// hostPaths returns a replacer that replaces paths of the agent's mounts in messages with the paths
// on the node, which users need.
func hostPaths(v settings.Values) *strings.Replacer {
	return strings.NewReplacer(
		v.Text("SLUICE_MOUNTED_BIN_DIR"), v.Text("SLUICE_HOST_BIN_DIR"),
		v.Text("MOUNTED_CNI_NET_DIR"), v.Text("SLUICE_HOST_NET_DIR"),
		v.Text("SLUICE_MOUNTED_CACHE_DIR"), v.Text("SLUICE_HOST_CACHE_DIR"),
	)
}
