package main

import (
	"net/netip"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// parameters are what the flags and the environment say.
type parameters struct {
	redirect rules.Redirect // without what is found in the pod: see complete
	names    names

	envoyUser   string // whose id is the proxy's, if no id is given
	dualStack   bool
	podIPs      []netip.Addr
	strictIstio bool

	netnsPath, networkNamespace string
	pid                         int

	dryRun, cleanupOnly, skipApply, runValidation bool
	probePort                                     uint16
	probeTimeout                                  time.Duration

	backend string // "auto", "nft" or "legacy"
	output  string // "text" or "json"
	format  string // of show: "nft", "iptables" or "json"
	live    bool   // of explain
	podFile string // of explain
	config  string // of explain: a file

	pod     podName         // which the node agent is asked for; the zero value for none
	runDir  string          // that plugin and agent share
	located *agent.Location // what the agent says, once it was asked

	istio bool // of cleanup
	diff  diffParameters
	// budget bounds the work of diff and explain.
	budget diff.Budget
	text   string // what was parsed, if it was a SPEC of diff
}

// names finds the numeric ids of names. The kernel knows numbers only, and so do all packages but this command.
type names struct{ users, groups rules.Lookup }

// defaultParameters are those without any flag and variable.
func defaultParameters(n names) *parameters {
	p := &parameters{
		redirect:     rules.DefaultRedirect(),
		names:        n,
		envoyUser:    "istio-proxy",
		probePort:    defaultProbePort,
		probeTimeout: defaultProbeTimeout,
		backend:      string(compat.BackendAuto),
		output:       outputText,
		format:       formatNFT,
		budget:       diff.DefaultBudget,
		runDir:       config.DefaultRunDir,
	}
	// Empty means: to be found out. See complete.
	p.redirect.ProxyUIDs, p.redirect.ProxyGIDs = nil, nil
	return p
}

// Istio's defaults of the validation (tools/istio-iptables/pkg/constants).
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

// identifyProxy fills in the proxy's users and groups as Istio does: without users the id of a well-known user, or else
// Istio's number; without groups the numbers of the users.
func (p *parameters) identifyProxy() {
	r := &p.redirect
	if len(r.ProxyUIDs) == 0 {
		id, err := p.names.users(p.envoyUser)
		if err != nil {
			id = rules.DefaultProxyID
		}
		r.ProxyUIDs = rules.Singles(id)
	}
	if len(r.ProxyGIDs) == 0 {
		r.ProxyGIDs = r.ProxyUIDs
	}
}
