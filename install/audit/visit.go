package audit

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// errorPause is after how long a pod is visited again that could not be understood or looked at.
const errorPause = 15 * time.Second

// A visit is one look at one pod, and what follows from it.
type visit struct {
	*Auditor
	*pod
	uid   string
	item  mirror.Item
	place *sandbox.Sandbox
	heard heard
	now   time.Time

	state    State
	compared bool
	used     time.Duration
	again    time.Time // when to come again; zero for when something happens
}

// visit visits a pod. It is called for a pod by one goroutine at a time.
func (a *Auditor) visit(ctx context.Context, uid string) {
	a.mu.Lock()
	p := a.pods[uid]
	if p == nil {
		a.mu.Unlock()
		return
	}
	v := &visit{Auditor: a, pod: p, uid: uid, item: p.item, place: p.place, heard: p.heard, now: time.Now()}
	if until := p.rest.until; until.After(v.now) {
		a.schedule.plan(uid, until) // before anybody can forget the pod, and its plan
		a.mu.Unlock()
		return
	}
	p.heard = heard{}
	a.mu.Unlock()

	before := a.Used()
	v.run(ctx)
	v.used = a.Used() - before // of the whole process, and so no less than is the visit's

	if gone := a.end(v); gone {
		a.note("what was repaired is not forgotten", a.repairs.remove(uid))
	}
}

// end keeps what a visit has found out, and tells whether the pod has gone meanwhile.
func (a *Auditor) end(v *visit) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[v.uid]
	if p != v.pod {
		return p == nil
	}
	p.state = v.state
	p.rest.note(v.used, time.Now())
	if v.compared {
		p.audited = v.now
	}
	if !v.again.IsZero() {
		a.schedule.plan(v.uid, v.again)
	}
	return false
}

func (v *visit) run(ctx context.Context) {
	if v.item.Life.Deleted || v.item.Life.Over() {
		return
	}
	before := v.pod.records
	if err := v.understand(ctx, v.pod, v.item); err != nil {
		v.puzzled(ctx, err)
		return
	}
	if v.want.decision.Outcome != decide.Redirect {
		return
	}
	if !slices.Equal(before, v.pod.records) {
		v.lose() // it may have another sandbox now
	}
	if !v.enters() {
		if v.want.origin == decided {
			v.instead(ctx, time.Time{})
		}
		return
	}
	if !v.Compare && v.want.origin != decided {
		v.helped(ctx)
		return
	}
	if ns := v.enter(ctx); ns != nil {
		defer func() { _ = ns.Close() }()
		v.look(ctx, ns)
	}
}

// puzzled is for a pod that is not understood. It counts as one of the mesh unless it was none before.
func (v *visit) puzzled(ctx context.Context, err error) {
	v.again = v.now.Add(errorPause)
	if ctx.Err() != nil || source.IsNotFound(err) || source.IsReplaced(err) { // then it will soon be known to have gone
		return
	}
	if v.version == "" || v.want.decision.Outcome == decide.Redirect {
		v.failed(err)
	}
}

// enter opens the pod's namespace, and listens to it. It returns nil if there is none now.
func (v *visit) enter(ctx context.Context) Namespace {
	if v.place == nil {
		v.lack(ctx)
		return nil
	}
	ns, err := v.Open(*v.place)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			v.Log.Debug("a sandbox is sought again", zap.Stringer("pod", v.item.Ref), zap.Error(err))
		}
		v.lose()
		v.lack(ctx)
		return nil
	}
	v.attend(ns)
	return ns
}

// lose forgets where the sandbox was.
func (v *visit) lose() {
	v.equal = equal{} // the kernel may give the namespace's number to another
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pod.place == v.place {
		v.pod.place = nil
	}
	v.place = nil
}

// lack seeks the sandbox, and meanwhile does what needs none.
func (v *visit) lack(ctx context.Context) {
	v.mu.Lock()
	sought, missing := v.sought > 0, v.missing
	v.mu.Unlock()
	if sought && v.started() {
		v.state = Unknown
		v.unaudited(missing)
		if v.want.origin == decided {
			v.instead(ctx, time.Time{})
		}
	}
	v.seeker.seek(v.uid, sandbox.Pod{Namespace: v.item.Namespace, Name: v.item.Name, UID: v.want.sandboxUID})
}

// attend makes changes in the namespace be heard. It comes before the look, so that no change is missed.
func (v *visit) attend(ns Namespace) {
	v.mu.Lock()
	events := v.events
	if v.pods[v.uid] == v.pod {
		// The number of a namespace that has ended may be another pod's by now.
		if v.watched != v.place.ID && v.homes[v.watched] == v.uid {
			delete(v.homes, v.watched)
		}
		v.watched = v.place.ID
		v.homes[v.watched] = v.uid
	}
	v.mu.Unlock()
	if events == nil {
		return
	}
	if err := events.Add(ns.NS()); err != nil {
		v.Log.Debug("a pod is visited by the timer only", zap.Stringer("pod", v.item.Ref), zap.Error(err))
	}
}

// look compares what the pod has with what it should have, and acts upon it.
func (v *visit) look(ctx context.Context, ns Namespace) {
	v.again = v.nextTurn()
	if v.early() {
		return
	}
	switch err := v.complete(ctx, v.pod, v.item, ns); {
	case errors.Is(err, errNoAddress):
		// They are still to come, or the pod's sandbox is being taken down, as its record already is.
		v.state, v.again = Unknown, v.now.Add(errorPause)
		return
	case err != nil:
		v.impossible(err)
		return
	}
	start := time.Now()
	found, err := v.compare(ns)
	v.Metrics.Observe("sluice_audit_duration_seconds", time.Since(start).Seconds())
	switch {
	case err != nil:
		v.failed(err)
	case len(found.Differences) == 0:
		v.Metrics.Count("sluice_audits_total", 1, "equal")
		v.compared, v.state = true, Redirected
		v.want.engine = found.Engine
		v.trouble = trouble{mends: v.trouble.mends}
		v.surroundings(ns)
		v.helped(ctx)
	default:
		v.Metrics.Count("sluice_audits_total", 1, "drift")
		v.compared = true
		v.differs(ctx, ns, found)
	}
}

// compare compares. What was as it should be at the last visit is asked of the kernel only whether it has changed, where it can tell.
func (v *visit) compare(ns Namespace) (found compat.Comparison, err error) {
	last := v.equal
	v.equal = equal{}
	rs := rules.Compile(*v.want.redirect)
	if last.in == v.place.ID && last.redirect == v.want.redirect {
		found, err = ns.Recheck(last.found, rs)
	} else {
		found, err = ns.Check(v.want.engine, rs)
	}
	if err == nil && len(found.Differences) == 0 {
		v.equal = equal{v.place.ID, v.want.redirect, found}
	}
	return found, err
}

// early tells whether the pod's ADD may be still under way, and its addresses still to come, so that it must not be taken for a late
// one: a process of the pod may be there before them. The other sources have a sandbox only after its ADD.
func (v *visit) early() bool {
	return v.want.origin == decided && v.place.Source == sandbox.Proc && !v.started()
}

// started tells whether the pod's status says that it has a sandbox with a network.
func (v *visit) started() bool { return v.want.up || v.item.Life.Phase == "Running" }

// surroundings looks whether others have rules in the way, when those of anybody may have changed. The agent does not touch them.
func (v *visit) surroundings(ns Namespace) {
	if v.heard.rules || len(v.ahead) > 0 || v.seen != v.place.ID {
		v.ahead, v.seen = ns.Ahead(v.want.engine, *v.want.redirect), v.place.ID
	}
	if len(v.ahead) > 0 {
		v.state = Drifted
		v.tell(drifted, "the pod's redirection is as it should be, but others have rules in its way: "+strings.Join(v.ahead, "; "))
	}
}

// failed is for a namespace that cannot be looked into.
func (v *visit) failed(err error) {
	v.Metrics.Count("sluice_audits_total", 1, "error")
	v.unaudited(err)
	v.state, v.again = Unknown, v.now.Add(errorPause)
}

// unaudited logs why a pod is unknown.
func (v *visit) unaudited(why error) {
	if v.fresh(auditFailed) {
		v.Log.Warn("a pod cannot be audited", zap.Stringer("pod", v.item.Ref), zap.Error(why))
	}
}

// impossible is for a pod of which nobody knows what it should have.
func (v *visit) impossible(err error) {
	v.Metrics.Count("sluice_audits_total", 1, "error")
	v.state, v.compared, v.again = Unprotected, true, v.now.Add(errorPause)
	v.tell(notRedirected, "the pod is not redirected, and cannot be: "+err.Error())
}

// turns is how many moments an interval has at which pods are visited without an event. So not all come at once, and those that come
// together share what it takes to wake a thread and to have everything at hand: several times as much as a visit.
const turns = 6

// nextTurn is when the pod is visited next without an event: at one of the moments of the interval, always the same. They are counted
// from when the auditor was made: nobody sets that clock back, after which there would be no turn until the old time has come again.
func (v *visit) nextTurn() time.Time {
	if !v.Compare {
		return time.Time{}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(v.uid))
	turn := v.begin.Add(v.now.Sub(v.begin).Truncate(v.Interval) + v.Interval/turns*time.Duration(h.Sum64()%turns))
	if !turn.After(v.now) {
		turn = turn.Add(v.Interval)
	}
	return turn
}

// engineOf is the engine to mend by: where the rules were, if that is known.
func (v *visit) engineOf(found compat.Comparison) compat.Engine {
	if v.want.origin == decided {
		return v.Engine
	}
	return found.Engine
}
