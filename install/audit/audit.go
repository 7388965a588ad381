package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// An Auditor audits the pods of a node. Use [New]. Its methods are safe for concurrent use.
type Auditor struct {
	Options
	records          *record.Index
	repairs          *repairs
	rulesets         rulesetCache
	changes          workqueue.TypedInterface[cluster.Name]
	changesProcessed atomic.Uint64          // number of processed changes
	auditsBegun      atomic.Uint64          // number of the last audit
	running          [workers]atomic.Uint64 // number of the audit that each worker runs; 0 for none
	repairBackoff    backoff                // of failed repairs
	actionBackoff    backoff                // of deletions and labels
	locator          *locator
	eventQueue       *eventQueue
	begin            time.Time // reference time of all intervals, with a reading of the monotonic clock

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[string] // UIDs; nil before Run
	pods    map[string]*pod                              // by UID
	byName  map[cluster.Name]string                      // without orphaned pods
	byNetNS map[netns.ID]string                          // the UID of the pod with the network namespace
	// byNamespace contains, for each namespace, the packets of its pods with counters, including
	// deleted pods.
	byNamespace map[string]*packets
	// listed is set once the pods that existed at the auditor's start are in pods.
	listed bool
	// events provides events of network namespaces; nil while they are not available.
	events watch.Events
	// auditAllAt is the time of the last or planned audit of all pods; see scheduleAll.
	auditAllAt time.Time
	// noRequestsUntil is the time before which the auditor sends no request to delete or label a
	// pod, because the API server did not reply to the last one.
	noRequestsUntil time.Time
}

// New returns an auditor. Call Run to start it.
func New(o Options) *Auditor {
	a := &Auditor{
		Options: o, records: o.Records.Index(), repairs: &repairs{store: o.Repairs},
		changes:       workqueue.NewTyped[cluster.Name](),
		repairBackoff: newBackoff(), actionBackoff: newBackoff(),
		eventQueue: newEventQueue(o.Cluster.SendEvent, o.Log), begin: time.Now(),
		pods: map[string]*pod{}, byName: map[cluster.Name]string{}, byNetNS: map[netns.ID]string{},
		byNamespace: map[string]*packets{},
	}
	a.locator = &locator{auditor: a, wake: notify.New(), pending: map[string]sandbox.Pod{}}
	return a
}

// Run audits the pods until the context ends. It returns immediately if no enabled feature needs
// audits.
func (a *Auditor) Run(ctx context.Context) {
	if !a.needsAudits() {
		return
	}
	if err := a.repairs.load(); err != nil {
		a.Log.Warn("earlier repairs of some pods are unknown", zap.Error(err))
	}
	a.mu.Lock()
	a.queue = newQueue(a.begin)
	a.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { a.watchPods(ctx) })
	group.Go(func() { a.eventQueue.run(ctx) })
	if a.entersNamespaces() {
		group.Go(func() { a.locator.run(ctx) })
	}
	if a.Compare {
		group.Go(func() { a.watchEvents(ctx) })
	}
	a.runWorkers(ctx, a.audit)
	group.Wait()
}

// Changed tells the auditor that a pod was added, changed or deleted. Empty names mean that any pod
// may have changed. It does not block.
func (a *Auditor) Changed(namespace, name string) {
	if a.needsAudits() { // otherwise Run does not process changes
		a.changes.Add(cluster.Name{Namespace: namespace, Name: name})
	}
}

// watchPods updates a.pods after each change.
func (a *Auditor) watchPods(ctx context.Context) {
	defer context.AfterFunc(ctx, a.changes.ShutDown)()
	a.changes.Add(cluster.Name{})
	for {
		n, shutdown := a.changes.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		a.changesProcessed.Add(1)
		switch {
		case !a.Pods.Synced(): // the cache reports all pods when it is synced
		case n == (cluster.Name{}):
			a.replacePods(ctx)
		default:
			item, ok := a.Pods.Item(n.Namespace, n.Name)
			a.updatePod(n, item, ok)
		}
		a.changes.Done(n)
	}
}

// replacePods replaces a.pods with the pods in the cache and the orphaned pods.
func (a *Auditor) replacePods(ctx context.Context) {
	exists := map[cluster.Name]bool{}
	for _, item := range a.Pods.Pods() {
		n := cluster.Name{Namespace: item.Namespace, Name: item.Name}
		exists[n] = true
		a.updatePod(n, item, true)
	}
	a.mu.Lock()
	a.listed = true
	var deleted []cluster.Name
	for n := range a.byName {
		if !exists[n] {
			deleted = append(deleted, n)
		}
	}
	a.mu.Unlock()
	for _, n := range deleted {
		a.updatePod(n, podcache.Item{}, false)
	}
	a.addOrphans(ctx)
}

// updatePod updates a pod from the cache. If ok is false, or another pod has the name now, the
// earlier pod with the name was deleted.
func (a *Auditor) updatePod(n cluster.Name, item podcache.Item, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, known := a.byName[n]; known && (!ok || old != item.UID) {
		delete(a.byName, n)
		a.orphan(old)
	}
	if !ok {
		return
	}
	p, now := a.pods[item.UID], time.Now()
	if p == nil {
		p = newPod()
		p.existed, p.startUnknownSince = !a.listed, now
		if p.existed {
			p.startUnknownSince = now.Add(-errorBackoff) // its sandbox is not starting
		}
		a.pods[item.UID] = p
	} else if !p.orphaned && p.item.ResourceVersion == item.ResourceVersion {
		return
	}
	a.byName[n], p.item, p.orphaned = item.UID, item, false
	at := p.changeLimit.next(now)
	if at.Equal(now) { // continual changes of a pod do not reset its search backoff
		a.queue.Forget(item.UID)
	}
	a.scheduleAudit(item.UID, at)
}

// scheduleAudit plans an audit of a pod at a time, unless one is planned for an earlier time.
func (a *Auditor) scheduleAudit(uid string, at time.Time) { a.queue.AddAfter(uid, time.Until(at)) }

// forget removes the backoffs and the stored repair of a pod that has been removed from a.pods.
func (a *Auditor) forget(uid string) {
	a.queue.Forget(uid)
	a.repairBackoff.delays.Forget(uid)
	a.actionBackoff.delays.Forget(uid)
	a.warn("the stored repair of a deleted pod cannot be removed", a.repairs.remove(uid))
}

// warn logs an error that needs no other handling. It ignores a nil error.
func (a *Auditor) warn(text string, err error) {
	if err != nil {
		a.Log.Warn(text, zap.Error(err))
	}
}
