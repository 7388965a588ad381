// Package settings declares the environment variables of the node agent and the Helm values that
// set them. The agent parses its environment with this package, and the chart and its documentation
// are tested against it. The descriptions of the plugin's settings are taken from the packages
// rules/parameter and plugin/config.
//
// Settings that also exist in Istio's installer have Istio's names. The names of other settings
// begin with SLUICE_. Variables of Istio's installer that have no effect in Sluice are rejected
// with an explanation ([Refused]). The chart also refuses other names that begin like a name of the
// agent or of Istio's installer, because they are probably misspelled.
package settings

import "slices"

// A Setting is one environment variable.
type Setting struct {
	// Env is the variable's name.
	Env string
	// Helm is the key in the chart's values, with a dot between an object and its field. If it is
	// empty, the key env.NAME sets the variable, unless the setting is Fixed.
	Helm string
	// Kind defines the allowed values.
	Kind Kind
	// Default is the value if the variable is unset or empty.
	Default string
	// Chart is the value in the chart's values.yaml, if it differs from Default.
	Chart string
	// Example is another allowed value.
	Example string
	// Required is set if the variable must be set. The chart sets these variables through the
	// downward API.
	Required bool
	// Fixed is set if Helm values cannot override the setting, because mounts and permissions of
	// the chart depend on it. Required settings cannot be overridden either.
	Fixed bool
	// Help describes the purpose of the setting.
	Help string
}

// Defaults of the chart: paths in the agent's container, the name of the DaemonSet, and ports.
// SourceDir is a directory of the image.
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

// All returns the settings in the order of the documentation.
func All() []Setting {
	return slices.Concat(installSettings, pluginSettings, ambientSettings, repairSettings,
		operateSettings, pathSettings)
}

// Find returns the setting of an environment variable. The second result reports whether it exists.
func Find(env string) (Setting, bool) {
	all := All()
	index := slices.IndexFunc(all, func(s Setting) bool { return s.Env == env })
	if index < 0 {
		return Setting{}, false
	}
	return all[index], true
}
