// Package config reads the configuration of the CNI plugin: the entry of a network configuration list, as the runtime completes it
// and hands it over on standard input.
//
// The names are Istio's where Istio's plugin has the same field or had it once. All fields are described in one table, [Fields].
// Fields that are not known are ignored, since runtimes and other programs add their own, unless they look like one of ours with a
// slip: those are refused, for a misspelt exclusion would be missed by nobody until it is needed.
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

// Config is a configuration. Values come from [Parse]; the zero value is not valid.
type Config struct {
	// CNIVersion is the version of the specification that runtime and plugin speak: one of Versions.
	CNIVersion string
	// Network is the name of the network.
	Network string
	// PrevResult is the result of the plugin before in the chain, as it was written; nil without one.
	PrevResult json.RawMessage
	// Annotations are those of the pod where the runtime passes them; otherwise empty.
	Annotations map[string]string
	// ValidAttachments are given to the verb GC only; nil where the runtime gives no list.
	ValidAttachments []types.GCAttachment

	// RunDir is the directory of what the plugin keeps and shares with the node agent.
	RunDir string
	// Kubeconfig is the path of the file with the API server's address and our credentials.
	Kubeconfig string
	// Backend is the engine that gets the rules.
	Backend compat.Engine
	// UnreadablePods says what becomes of a pod that cannot be read.
	UnreadablePods Policy
	// APIBudget bounds all attempts to read a pod together, and APITryTimeout each of them.
	APIBudget, APITryTimeout time.Duration
	// Decide is what decisions depend on.
	Decide decide.Settings
	// Log says what is logged, and where to.
	Log options.Log
}

// Policy says what becomes of a pod that cannot be read.
type Policy string

// The policies.
const (
	Fail Policy = "fail" // it does not start: nothing passes the proxy unseen
	Skip Policy = "skip" // it starts without redirection
)

// DefaultRunDir is where a plugin without configuration looks.
const DefaultRunDir = "/var/run/sluice-cni"

// agentName is the name of the node agent's DaemonSet.
const agentName = "sluice-node"

// Versions are the versions of the CNI specification that can be configured, in ascending order.
func Versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// Names of files in the run directory, unless the configuration names others.
const (
	kubeconfigFile = "sluice-cni-kubeconfig"
	logFile        = "sluice-cni.log"
)

// annotationsCapability is the capability by which a runtime passes the pod's annotations (containerd and CRI-O do).
const annotationsCapability = "io.kubernetes.cri.pod-annotations"

// frame is the part of a configuration that CNI defines.
type frame struct {
	CNIVersion       string                     `json:"cniVersion"`
	Name             string                     `json:"name"`
	PrevResult       json.RawMessage            `json:"prevResult"`
	RuntimeConfig    map[string]json.RawMessage `json:"runtimeConfig"`
	ValidAttachments []types.GCAttachment       `json:"cni.dev/valid-attachments"`
}

// Parse reads a configuration. The error is a [rules.Faults] that lists all that is wrong, each with its field, its value and what is
// allowed; it is another one if the data is no JSON object, or is none of a CNI configuration.
func Parse(data []byte) (*Config, error) {
	c, err := read(data)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Salvage returns what can be used of a configuration that may have any fault, or be missing: what [Parse] would refuse is as good
// as not given. It is for what must go on whatever is wrong, and for nothing else.
func Salvage(data []byte) *Config {
	c, _ := read(data)
	return c
}

// read returns the configuration as far as it is right, and what is wrong with it.
func read(data []byte) (*Config, error) {
	c := &Config{
		RunDir: DefaultRunDir, Backend: compat.EngineAuto, UnreadablePods: Fail,
		APIBudget: 10 * time.Second, APITryTimeout: 3 * time.Second,
		Decide: decide.Settings{AgentDaemonSet: agentName},
		Log:    options.Log{MaxMegabytes: 10, Backups: 1, MaxDays: 2},
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil {
		return c, fmt.Errorf("decode the network configuration: %w", err)
	}
	faults := c.take(given)
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return c, fmt.Errorf("decode the network configuration: %w", err)
	}
	c.takeFrame(&f)
	if _, listed := given["cni.dev/valid-attachments"]; listed && f.ValidAttachments == nil {
		c.ValidAttachments = []types.GCAttachment{} // libcni writes an empty list as null
	}
	if faults = append(c.checkFrame(), faults...); len(faults) > 0 {
		return c, faults
	}
	return c, nil
}

func (c *Config) takeFrame(f *frame) {
	c.CNIVersion, c.Network, c.ValidAttachments = f.CNIVersion, f.Name, f.ValidAttachments
	if string(f.PrevResult) != "null" {
		c.PrevResult = f.PrevResult
	}
	c.Annotations = annotations(f.RuntimeConfig)
}

func (c *Config) checkFrame() rules.Faults {
	var faults rules.Faults
	if !slices.Contains(Versions(), c.CNIVersion) {
		faults = append(faults, rules.Fault{Field: "cniVersion", Value: short(strconv.Quote(c.CNIVersion)), Allowed: strings.Join(Versions(), ", ")})
	}
	return faults
}

// take sets the fields that are given, and those that follow from others.
func (c *Config) take(given map[string]json.RawMessage) rules.Faults {
	faults := setFields(c, given)
	if c.Kubeconfig == "" {
		c.Kubeconfig = filepath.Join(c.RunDir, kubeconfigFile)
	}
	if raw, stated := given[logFileField]; !stated || string(raw) == "null" {
		c.Log.File = filepath.Join(c.RunDir, logFile)
	}
	if c.APITryTimeout > c.APIBudget {
		c.APITryTimeout = c.APIBudget
	}
	return faults
}

// annotations finds the pod's annotations. What has another form counts as not passed: they only spare a question.
func annotations(runtime map[string]json.RawMessage) map[string]string {
	var found map[string]string
	if json.Unmarshal(runtime[annotationsCapability], &found) != nil {
		return nil
	}
	return found
}
