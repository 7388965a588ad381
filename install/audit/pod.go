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

// A State is the state of a pod's redirection, as in the metric. It is empty for pods outside the
// mesh, and for pods that have not been audited because they are starting or ending, or have ended.
type State string

// The states.
const (
	Redirected  State = "redirected"
	Drifted     State = "drifted"
	Unprotected State = "unprotected"
	Unknown     State = "unknown"
)

// States returns all states except the empty one.
func States() []State { return []State{Redirected, Drifted, Unprotected, Unknown} }

// pod contains the auditor's state of a pod of the node.
type pod struct {
	// The auditor's lock guards these fields:

	item podcache.Item
	// orphaned is set if the API server no longer has the pod; see addOrphans.
	orphaned bool
	state    State
	// effect is the effect of foreign rules on the pod's captured traffic.
	effect foreign.Verdict
	// existed is set if the pod existed when the auditor started.
	existed  bool
	counters podCounters
	// replaced is set if the pod is orphaned and another pod has the series of its counters.
	replaced bool
	// auditedAt is the time of the last audit that set hasCompared.
	auditedAt time.Time
	// startUnknownSince is set while it is unknown whether the runtime called the plugin for the
	// pod's sandbox, to the time when this became unknown. It is zero if this is known, or if the
	// pod needs no plugin.
	startUnknownSince time.Time
	sandbox           *sandbox.Sandbox // nil if unknown
	missing           sandbox.Missing  // why the last search found no sandbox; or zero
	// eventLimit limits the audits after events, and changeLimit the audits after changes of the
	// pod.
	eventLimit, changeLimit auditLimit
	pausedUntil             time.Time // no audit begins before, because the last one was expensive
	pending                 pendingEvents
	watchedNetNS            netns.ID // network namespace whose events cause audits

	// Only the worker that audits the pod uses these fields:

	// version and records are the version of the object and the records of ADD that desired was
	// determined from. version is empty if desired must be determined again.
	version       string
	records       []*record.Record
	desired       desiredState
	lastEqual     lastEqual
	foreignEffect foreignEffect
	// isUnreadable is set if the state could not be read in an audit, until the state is known.
	isUnreadable bool
	// undecidedSince is the time of the first of successive audits that could not decide whether
	// traffic bypasses the proxy, because of foreign rules or a missing address. It is zero if the
	// last audit could decide.
	undecidedSince time.Time
	// withoutSandboxSince is the time of the first of successive audits that did not find the
	// sandbox. It is zero if the last audit found it.
	withoutSandboxSince time.Time
	// addressesDifferSince is the time of the first of successive audits that found no address of
	// the network namespace in the pod's status; see mayADDBeRunning. It is zero if the last audit
	// found one, or could not compare the addresses.
	addressesDifferSince time.Time
	// recordRemovedAt is the time of the first audit that found the record of ADD removed; see
	// isRecordDecisive. It is zero if there is a record, or if the pod started without one.
	recordRemovedAt time.Time
	ipv6            ipv6Decision
	lastEvents      map[string]lastEvent // by reason
	unrepaired      unrepaired
	action          attempt // last attempt to delete or label the pod
	// actedVersion is the version of the object that was deleted or labeled, or for which the
	// request was rejected because the pod had changed. It needs no further action.
	actedVersion string
}

func newPod() *pod {
	return &pod{
		lastEvents:  map[string]lastEvent{},
		eventLimit:  auditLimit{limiter: rate.NewLimiter(rate.Every(eventPeriod), auditBurst)},
		changeLimit: auditLimit{limiter: rate.NewLimiter(rate.Every(changePeriod), auditBurst)},
		unrepaired:  unrepaired{repairs: rate.NewLimiter(rate.Every(repairPeriod), repairBurst)},
	}
}

// pendingEvents contains the events since the last audit.
type pendingEvents struct {
	at      time.Time // time of the first event; zero if there was none
	rules   bool      // set if rules or policy routes may have changed
	process string    // process that last changed rules
	pid     uint32
}

func (p *pendingEvents) add(e watch.Event, now time.Time) {
	if p.at.IsZero() {
		p.at = now
	}
	p.rules = p.rules || e.Rules || e.Routes
	if e.Rules && e.PID != 0 {
		p.process, p.pid = e.Process, e.PID
	}
}

// unrepaired contains digests of the differences that have not been repaired, and the limits of
// repairs.
type unrepaired struct {
	since        time.Time // zero if there are no differences
	found        string    // the differences that the last audit found
	unrepairable string    // the differences that the last repair did not remove

	repairs *rate.Limiter
	failed  attempt // last repair that failed or left differences
}

// nextRepair returns the earliest time at which the differences with the digest may be repaired.
// limited is set if the rate limit causes a delay, and not the failure of the last repair.
func (u *unrepaired) nextRepair(digest string, now time.Time) (at time.Time, limited bool) {
	if at := u.failed.next; at.After(now) && (u.unrepairable == "" || u.unrepairable == digest) {
		return at, false
	}
	r := u.repairs.ReserveN(now, 1)
	defer r.CancelAt(now) // only the repair itself takes a token
	at = now.Add(r.DelayFrom(now))
	return at, at.After(now)
}

// reset removes the differences and permits the next repair without backoff. It keeps the rate
// limit of repairs, and the time of the last failed repair, from which recordAttempt decides
// whether the next backoff continues to double.
func (u *unrepaired) reset() {
	*u = unrepaired{repairs: u.repairs, failed: attempt{last: u.failed.last}}
}

// lastEqual is the last comparison if it found no differences, and otherwise the zero value.
type lastEqual struct {
	netns       netns.ID
	redirection redirection
	found       compat.Comparison
}
