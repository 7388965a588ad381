package main

import (
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules/diff"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// parameters contains the values of the flags and the environment.
type parameters struct {
	params.Values // [system.complete] adds the properties of the pod

	names params.Names // look up the ids of users and groups

	netnsPath, networkNamespace string
	pid                         int

	dryRun, cleanupOnly, skipApply, runValidation bool
	probePort                                     uint16
	probeTimeout                                  time.Duration

	output  string        // "text" or "json"
	format  string        // of show: "nft", "iptables" or "json"
	live    bool          // of explain and show
	exact   bool          // of show
	watch   time.Duration // of show: the interval; 0 prints once
	podFile string        // of explain
	config  string        // of explain: a file
	packet  packetFlags   // of explain

	pod     podName         // of --pod; zero without the flag
	runDir  string          // the directory that plugin and agent share
	located *agent.Location // the agent's answer about the pod; nil without --pod

	node bool             // of --node
	host *agent.HostRules // the agent's answer about the node; nil without --node

	istio bool // of cleanup
	diff  diffParameters
	trace liveTraceParameters
	// budget bounds the work of check, diff and explain, and the memory of each prediction of
	// trace. doctorBudget bounds each decision of doctor.
	budget, doctorBudget diff.Budget

	sideName string // of diff: the name of the side that the parameters describe
}

// defaultParameters returns the values without flags and variables.
func defaultParameters(n params.Names) *parameters {
	return &parameters{
		Values:       params.Defaults(),
		names:        n,
		probePort:    defaultProbePort,
		probeTimeout: defaultProbeTimeout,
		output:       outputText,
		format:       formatNFT,
		budget:       defaultBudget(),
		doctorBudget: defaultDoctorBudget(),
		packet:       packetFlags{},
		runDir:       config.DefaultRunDir,
	}
}

// Istio's defaults for the validation (tools/istio-iptables/pkg/constants).
const (
	defaultProbePort    = 15002
	defaultProbeTimeout = 5 * time.Second
)

// The values of --output and --format.
const (
	outputText     = "text"
	outputJSON     = "json"
	formatNFT      = "nft"
	formatIPTables = "iptables"
	formatJSON     = "json"
)
