package main

import (
	"time"

	"github.com/sluice-mesh/sluice/compat"
	validator "github.com/sluice-mesh/sluice/compat/validation"
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
		probePort:    validator.DefaultPort,
		probeTimeout: validator.DefaultTimeout,
		output:       outputText,
		format:       formatNFT,
		budget:       defaultBudget(),
		doctorBudget: defaultDoctorBudget(),
		packet:       packetFlags{words: map[string]string{}},
		runDir:       config.DefaultRunDir,
	}
}

// The values of --output and --format.
const (
	outputText     = "text"
	outputJSON     = "json"
	formatNFT      = "nft"
	formatIPTables = "iptables"
	formatJSON     = "json"
)

// backend returns the backend of Sluice's rules.
func (p *parameters) backend() (compat.Backend, error) { return compat.Choose(p.backendName()) }

// backendName returns the backend that a flag or a variable selects, or otherwise the backend that
// the agent reports for Sluice's rules.
func (p *parameters) backendName() compat.BackendName {
	reported := ""
	switch {
	case p.located != nil:
		reported = p.located.Backend
	case p.host != nil:
		reported = p.host.Backend
	}
	if p.Backend == string(compat.BackendAuto) && reported != "" {
		return compat.BackendName(reported)
	}
	return compat.BackendName(p.Backend)
}

// backends returns the backends whose rules are listed or removed: all if the backend is auto.
func (p *parameters) backends() ([]compat.Backend, error) {
	if p.Backend == string(compat.BackendAuto) {
		return compat.Backends(), nil
	}
	b, err := p.backend()
	return []compat.Backend{b}, err
}

// otherBackend returns the backend that is not the named one.
func otherBackend(name compat.BackendName) compat.BackendName {
	if name == compat.BackendNFT {
		return compat.BackendLegacy
	}
	return compat.BackendNFT
}
