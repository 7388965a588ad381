// Package settings declares the environment variables of the node agent and the Helm values that
// set them. The agent parses its environment with it; the chart and its documentation are tested
// against it. Parameters of the plugin and the command rules come from the catalogue in package
// rules/parameter, and other fields of the plugin's configuration from package plugin/config.
// Settings that Istio's installer has too have Istio's names. The names of other settings begin
// with SLUICE_. Variables of Istio that have no effect here are rejected with an explanation,
// [Refused], instead of being ignored.
package settings

import "slices"

// A Setting is one environment variable.
type Setting struct {
	// Env is the variable's name.
	Env string
	// Helm is the key in the chart's values, with a dot between an object and its field; empty if
	// there is none, and then the key env.NAME sets it unless it is Fixed.
	Helm string
	// Kind defines the allowed values.
	Kind Kind
	// Default applies if the variable is unset or empty. Required settings have none.
	Default string
	// Chart is the value in the chart's values.yaml, if it differs from Default.
	Chart string
	// Example is another allowed value.
	Example string
	// Required settings have no default. The chart sets them through the downward API.
	Required bool
	// Fixed settings cannot be overridden through Helm values, because mounts and permissions of
	// the chart depend on them. Required settings are fixed as well.
	Fixed bool
	// Help describes the purpose of the setting.
	Help string
}

// Paths in the container of the agent, and defaults of the chart. SourceDir is in the image.
const (
	SourceDir      = "/opt/cni/bin"
	MountedBinDir  = "/host/opt/cni/bin"
	MountedNetDir  = "/host/etc/cni/net.d"
	MountedNetns   = "/host/var/run/netns"
	MountedProc    = "/host/proc"
	MountedCache   = "/host/var/lib/cni"
	RunDir         = "/var/run/sluice-cni"
	StateDir       = "/var/lib/sluice-cni"
	ZtunnelSocket  = "/var/run/ztunnel/ztunnel.sock"
	DaemonSet      = "sluice-node"
	MonitoringPort = "15014"
	HealthPort     = "8000"
)

// All returns the settings in the order in which they are documented.
func All() []Setting {
	return slices.Concat(installSettings, pluginSettings, ambientSettings, repairSettings, operateSettings,
		placeSettings)
}

// Find returns the setting of an environment variable.
func Find(env string) (Setting, bool) {
	all := All()
	at := slices.IndexFunc(all, func(s Setting) bool { return s.Env == env })
	if at < 0 {
		return Setting{}, false
	}
	return all[at], true
}
