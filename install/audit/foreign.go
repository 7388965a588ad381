package audit

import (
	"strings"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// others is what rules of other owners do to the captured traffic of a pod.
type others struct {
	reading foreign.Reading
	// The reading is of this namespace, redirection and generation of nftables, and of no other.
	// The generation is 0 if it is unknown.
	in         netns.ID
	redirect   *rules.Redirect
	generation uint32
	// exhausted reports that the last decision took more than its budget.
	exhausted bool
}

// secondTry is how many times as long a decision may take that has taken more than its budget. Of a
// pod whose rules make that happen again and again, [rest] bounds the cost.
const secondTry = 10

// inspect decides what rules of others do to the captured traffic of a pod whose own rules are as
// desired. The agent does not touch them. The decision is repeated when rules have changed.
func (v *reconciliation) inspect(ns Namespace) {
	v.state = Redirected
	generation := v.equal.found.Snapshot.Generation
	var last *foreign.Reading
	same := v.others.in == v.sandbox.ID && v.others.redirect == v.desired.redirect && v.others.generation == generation
	if same && !v.heard.rules && (v.listens || generation != 0) {
		last = &v.others.reading
	}
	exhausted, budget := v.others.exhausted, diff.AgentBudget
	if exhausted {
		budget.Time *= secondTry
	}
	v.others = others{
		reading: ns.Foreign(rules.MustCompile(*v.desired.redirect), last, budget), in: v.sandbox.ID, redirect: v.desired.redirect, generation: generation,
	}
	found := &v.others.reading
	switch v.effect = found.Verdict(); v.effect {
	case foreign.Bypassed:
		v.state = Drifted
		v.recordEvent(bypassed, "the pod's redirection is as it should be, but rules of others let traffic bypass the proxy: "+
			strings.Join(found.Sentences(), "; "))
	case foreign.Unknown:
		v.state = Unknown
		// The time may have passed because the node is busy: only when it passes again is that
		// reported.
		v.others.exhausted = found.Exhausted
		if found.Exhausted && !exhausted {
			v.again = earlier(v.again, v.now.Add(firstPause))
			return
		}
		v.recordEvent(effectUnknown, "the pod's redirection is as it should be, but whether rules of others let traffic bypass the proxy "+
			"cannot be decided: "+strings.Join(found.Sentences(), "; "))
	}
}
