package audit

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// A State is the state of a pod's redirection, as in the metric. It is empty for pods without
// redirection: pods outside the mesh, and pods without a sandbox.
type State string

// The states.
const (
	Redirected  State = "redirected"
	Drifted     State = "drifted"
	Unprotected State = "unprotected"
	Unknown     State = "unknown"
)

// States returns the states that are counted.
func States() []State { return []State{Redirected, Drifted, Unprotected, Unknown} }

// pod contains the known facts about a pod of the node.
type pod struct {
	// The auditor's lock guards these fields:

	item  podcache.Item
	state State
	// foreign is the effect of foreign rules on its captured traffic.
	foreign foreign.Verdict
	// existed reports that the pod is older than the auditor.
	existed  bool
	counters podCounters
	// audited is the time of the last comparison.
	audited   time.Time
	sandbox   *sandbox.Sandbox // nil if unknown
	lookupErr error            // of the last lookup of the sandbox
	// Limits of visits because of events, and because of changes of the pod.
	eventLimit, changeLimit visitLimit
	visitPause              visitPause
	pending                 pendingEvents

	// Only the worker that visits the pod uses these fields:

	version       string           // of the object from which desired was determined; empty before
	records       []*record.Record // from which desired was determined
	desired       desired
	watched       netns.ID // the namespace to whose changes the auditor subscribed
	subscribed    bool     // the subscription is active
	equal         equal
	foreignEffect foreignEffect
	lastEvents    map[string]lastEvent
	unrepaired    unrepaired
	action        attempt // last deletion or label
	// the version of the object that was deleted or labelled, or that no longer existed
	actedVersion string
}

func newPod() *pod {
	return &pod{
		lastEvents:  map[string]lastEvent{},
		eventLimit:  visitLimit{limiter: newLimiter(eventPeriod, visitBurst)},
		changeLimit: visitLimit{limiter: newLimiter(changePeriod, visitBurst)},
		unrepaired:  unrepaired{repairs: newLimiter(repairPeriod, repairBurst)},
	}
}

// pendingEvents contains the events since the last visit.
type pendingEvents struct {
	at      time.Time // of the first one; zero if there was none
	rules   bool      // any rules may have changed
	process string    // process that last changed rules
	pid     uint32
}

func (h *pendingEvents) note(e watch.Event, now time.Time) {
	if h.at.IsZero() {
		h.at = now
	}
	h.rules = h.rules || e.Rules
	if e.Rules && e.PID != 0 {
		h.process, h.pid = e.Process, e.PID
	}
}

// unrepaired is a difference that has not been repaired.
type unrepaired struct {
	since        time.Time // zero if there is none
	text         string    // identifies the differences
	unrepairable string    // differences that a repair did not remove

	repairs *rate.Limiter // of all repairs
	failed  attempt       // the last repair that failed or left differences
}

// next returns the time from which the differences may be repaired.
func (t *unrepaired) next(text string, now time.Time) time.Time {
	if at := t.failed.next; at.After(now) && (t.unrepairable == "" || t.unrepairable == text) {
		return at
	}
	r := t.repairs.ReserveN(now, 1)
	defer r.CancelAt(now)
	return now.Add(r.DelayFrom(now))
}

// reset removes the difference, but keeps the limits of repairs.
func (t *unrepaired) reset() {
	*t = unrepaired{repairs: t.repairs, failed: attempt{last: t.failed.last}}
}

// equal identifies the last comparison without differences. Its namespace is zero if the last
// comparison found differences.
type equal struct {
	netns       netns.ID
	redirection redirection
	found       compat.Comparison
}
