// Package settings is the table of the node agent's settings: the environment variables it reads,
// and the keys of the chart's values that set them. The agent, the chart's documentation and the
// chart's tests are checked against this one table. Parameters that the plugin and the command rules
// have too come from the catalogue in package rules/parameter.
//
// Names are Istio's where its installer has the same setting; those that begin with SLUICE_ are
// ours. A variable of Istio's that means nothing here is refused with a reason, [Refused], so that
// nobody believes it to be in force.
package settings

import "slices"

// A Setting is one environment variable.
type Setting struct {
	// Env is the variable's name.
	Env string
	// Helm is the key in the chart's values, with a dot between an object and its field; empty if
	// there is none, and then the key env.NAME sets it unless it is Fixed.
	Helm string
	// Kind says what values are allowed.
	Kind Kind
	// Default counts where the variable is not set or empty. With Required there is none.
	Default string
	// Chart is what the chart's own values set, where that is not the default.
	Chart string
	// Example is another allowed value.
	Example string
	// Required settings have no default: the chart takes them from the pod.
	Required bool
	// Fixed settings are the chart's to decide, since its mounts and rights depend on them;
	// Required ones are so too.
	Fixed bool
	// Help says what the setting is for.
	Help string
}

// Where the chart mounts what belongs to the node, and where the image keeps what is installed.
const (
	SourceDir      = "/opt/cni/bin"
	MountedBinDir  = "/host/opt/cni/bin"
	MountedNetDir  = "/host/etc/cni/net.d"
	MountedNetns   = "/host/var/run/netns"
	MountedProc    = "/host/proc"
	MountedCache   = "/host/var/lib/cni"
	RunDir         = "/var/run/sluice-cni"
	StateDir       = "/var/lib/sluice-cni"
	DaemonSet      = "sluice-node"
	MonitoringPort = "15014"
	HealthPort     = "8000"
)

// All returns the settings in the order in which they are documented.
func All() []Setting {
	return slices.Concat(installSettings, pluginSettings, repairSettings, operateSettings, placeSettings)
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
