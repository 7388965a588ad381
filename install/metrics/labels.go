package metrics

import "github.com/sluice-mesh/sluice/plugin/agent"

var (
	result  = Label{"result", []string{"success", "error"}}
	backend = Label{"backend", []string{"nft", "legacy", "none"}}
	part    = Label{"part", []string{"binary", "kubeconfig", "configuration"}}
	// readyPart has besides the parts that are written what an ADD needs.
	readyPart = Label{"part", []string{"kernel", "binary", "configuration", "rights", "runtime", "kubeconfig", "socket"}}
	// decision is what was made of a pod at ADD: redirected, left alone by its owner's or the
	// mesh's will, not to be read, or nothing, since the call failed before.
	decision = Label{"decision", agent.Decisions()}
)

// durations are the buckets of what takes from a fraction of a millisecond to the time that a
// kubelet gives a runtime.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// sizes are the buckets of transactions: from rules only to ten thousand prefixes of each family.
var sizes = []float64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
