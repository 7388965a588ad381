package metrics

import "github.com/sluice-mesh/sluice/plugin/agent"

var (
	result  = Label{"result", []string{"success", "error"}}
	backend = Label{"backend", []string{"nft", "legacy", "none"}}
	part    = Label{"part", []string{"binary", "kubeconfig", "configuration"}}
	// readyPart contains all requirements for the success of an ADD.
	readyPart = Label{"part", []string{
		"kernel", "binary", "configuration", "permissions", "runtime", "kubeconfig", "socket", "ambient",
	}}
	// decision is the decision of ADD about a pod: redirect, ambient, skip, unreadable because the
	// pod could not be read, or undecided because the call failed before the decision.
	decision = Label{"decision", agent.Decisions()}
)

// durations contains the buckets of durations in seconds, from 0.5 ms to 30 s.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// sizes contains the buckets of the sizes of transactions in bytes, from the rules without prefixes
// to ten thousand prefixes of each family.
var sizes = []float64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
