package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/log/options"
	"github.com/sluice-mesh/sluice/rules"
)

// Config is a configuration, as returned by [Parse]. The zero value is not valid.
type Config struct {
	// CNIVersion is the version of the specification, one of [Versions].
	CNIVersion string
	// Network is the name of the network.
	Network string
	// PrevResult is the unmodified result of the previous plugin of the chain, or nil.
	PrevResult json.RawMessage
	// Annotations are the annotations of the pod, if the runtime passes them.
	Annotations map[string]string
	// ValidAttachments contains the attachments that GC keeps, or is nil if the runtime passes no
	// list.
	ValidAttachments []types.GCAttachment

	// RunDir is the directory of the plugin's files, which the plugin shares with the node agent.
	RunDir string
	// Kubeconfig is the path of the file with the address of the API server and the credentials.
	Kubeconfig string
	// Backend is the backend that applies the rules.
	Backend compat.BackendName
	// UnreadablePods is the policy for pods that cannot be read.
	UnreadablePods Policy
	// APIBudget limits the total time of all requests to the API server for one object, and
	// APITryTimeout the time of each request.
	APIBudget, APITryTimeout time.Duration
	// Decide contains the settings of decisions.
	Decide decide.Settings
	// Log contains the settings of the log.
	Log options.Log
}

// A Policy specifies what ADD does with a pod that cannot be read.
type Policy string

// The policies.
const (
	Fail Policy = "fail" // ADD fails: the pod does not start, so that no traffic bypasses the proxy
	Skip Policy = "skip" // the pod starts without redirection
)

// DefaultRunDir is the default of RunDir.
const DefaultRunDir = "/var/run/sluice-cni"

// agentName is the default name of the node agent's DaemonSet.
const agentName = "sluice-node"

// Versions returns the supported versions of the CNI specification, in ascending order.
func Versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// Names of files in the run directory, unless the configuration names others.
const (
	kubeconfigFile = "sluice-cni-kubeconfig"
	logFile        = "sluice-cni.log"
)

// annotationsCapability is the capability by which a runtime passes the pod's annotations
// (containerd and CRI-O do).
const annotationsCapability = "io.kubernetes.cri.pod-annotations"

// cniFields contains the fields of a configuration that CNI defines.
type cniFields struct {
	CNIVersion       string                     `json:"cniVersion"`
	Name             string                     `json:"name"`
	PrevResult       json.RawMessage            `json:"prevResult"`
	RuntimeConfig    map[string]json.RawMessage `json:"runtimeConfig"`
	ValidAttachments []types.GCAttachment       `json:"cni.dev/valid-attachments"`
}

// Parse parses a configuration. The error is a [rules.Faults] that lists all invalid fields, with
// their values and what is allowed. It has another type if the data is not the JSON object of a CNI
// configuration.
func Parse(data []byte) (*Config, error) {
	c, err := parse(data)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ParseLenient returns the valid part of a configuration. An invalid field of the plugin counts as
// missing, but a list keeps its valid elements, and an invalid log_file disables the log file. An
// unsupported CNIVersion stays as it is. Use ParseLenient only where an invalid configuration must
// not be an error.
func ParseLenient(data []byte) *Config {
	c, _ := parse(data)
	return c
}

// parse returns the valid part of the configuration, and the faults.
func parse(data []byte) (*Config, error) {
	c := &Config{
		RunDir: DefaultRunDir, Backend: compat.BackendAuto, UnreadablePods: Fail,
		APIBudget: 10 * time.Second, APITryTimeout: 3 * time.Second,
		Decide: decide.Settings{AgentDaemonSet: agentName},
		Log:    options.Log{MaxMegabytes: 10, Backups: 1, MaxDays: 2},
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return c, fmt.Errorf("decode the network configuration: %w", err)
	}
	faults := c.set(fields)
	var f cniFields
	if err := json.Unmarshal(data, &f); err != nil {
		return c, fmt.Errorf("decode the network configuration: %w", err)
	}
	c.CNIVersion, c.Network, c.ValidAttachments = f.CNIVersion, f.Name, f.ValidAttachments
	if string(f.PrevResult) != "null" {
		c.PrevResult = f.PrevResult
	}
	// Ignore malformed annotations: the plugin needs annotations only to avoid a request for the
	// pod.
	if json.Unmarshal(f.RuntimeConfig[annotationsCapability], &c.Annotations) != nil {
		c.Annotations = nil
	}
	if _, isPresent := fields["cni.dev/valid-attachments"]; isPresent && f.ValidAttachments == nil {
		c.ValidAttachments = []types.GCAttachment{} // libcni writes an empty list as null
	}
	if !slices.Contains(Versions(), c.CNIVersion) {
		faults = slices.Insert(faults, 0, rules.Fault{
			Field: "cniVersion", Value: shortValue(strconv.Quote(c.CNIVersion)),
			Allowed: strings.Join(Versions(), ", "),
		})
	}
	if len(faults) > 0 {
		return c, faults
	}
	return c, nil
}

// set sets the given fields of the plugin, and the defaults that depend on other fields.
func (c *Config) set(fields map[string]json.RawMessage) rules.Faults {
	faults := setFields(c, fields)
	if string(fields[ambientField]) != "true" {
		c.Decide.Ambient = nil
	}
	if c.Kubeconfig == "" {
		c.Kubeconfig = filepath.Join(c.RunDir, kubeconfigFile)
	}
	if raw, ok := fields[logFileField]; !ok || string(raw) == "null" {
		c.Log.File = filepath.Join(c.RunDir, logFile)
	}
	if c.APITryTimeout > c.APIBudget {
		c.APITryTimeout = c.APIBudget
	}
	return faults
}
