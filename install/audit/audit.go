package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// An Auditor audits the pods of a node. Use [New]. Its methods are safe for concurrent use.
type Auditor struct {
	Options
	records    *record.Index
	repairs    *repairs
	changes    workqueue.TypedInterface[podName]
	taken      atomic.Uint64 // changes that were taken over
	visits     visits
	failures   backoff // of repairs
	actions    backoff // deletions and labels
	locator    *locator
	eventQueue *eventQueue
	begin      time.Time // what moments are counted from; it has a reading of the monotonic clock

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[string] // UIDs; nil before Run
	pods  map[string]*pod                              // by UID
	named map[podName]string
	homes map[netns.ID]string // the UID of the pod whose namespace it is
	// events provides events of namespaces; nil while they are not available.
	events Events
	// round is the time of the last or planned visit of all pods after lost events.
	round time.Time
	// silent is the time until which no requests to delete or label a pod are sent, because the API
	// server did not reply to the last one.
	silent time.Time
}

// podName identifies a pod in the API server.
type podName struct{ namespace, name string }

// New returns an auditor, which begins with Run.
func New(o Options) *Auditor {
	a := &Auditor{
		Options: o, records: o.Records.Index(), repairs: &repairs{store: o.Repairs},
		changes: workqueue.NewTyped[podName](), failures: newBackoff(), actions: newBackoff(),
		eventQueue: newEventQueue(o.Cluster.SendEvent, o.Log), begin: time.Now(),
		pods: map[string]*pod{}, named: map[podName]string{}, homes: map[netns.ID]string{},
	}
	a.locator = newLocator(a)
	return a
}

// Run audits until the context ends.
func (a *Auditor) Run(ctx context.Context) {
	if !a.audits() {
		return
	}
	if err := a.repairs.load(); err != nil {
		a.Log.Warn("earlier repairs of some pods are unknown", zap.Error(err))
	}
	a.mu.Lock()
	a.queue = newQueue(a.begin)
	a.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { a.follow(ctx) })
	group.Go(func() { a.eventQueue.run(ctx) })
	if a.enters() {
		group.Go(func() { a.locator.run(ctx) })
	}
	if a.Compare {
		group.Go(func() { a.listen(ctx) })
	}
	a.work(ctx, a.reconcile)
	group.Wait()
}

// Changed reports that a pod was added, changed or deleted; with empty names, that any pod may have
// changed. It does not block.
func (a *Auditor) Changed(namespace, name string) {
	if a.audits() { // otherwise nobody takes it
		a.changes.Add(podName{namespace, name})
	}
}

// follow keeps the list of pods up to date.
func (a *Auditor) follow(ctx context.Context) {
	defer context.AfterFunc(ctx, a.changes.ShutDown)()
	a.changes.Add(podName{})
	for {
		n, shutdown := a.changes.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		a.taken.Add(1)
		switch {
		case !a.Pods.Synced(): // then they will all be listed
		case n == podName{}:
			a.list()
		default:
			item, ok := a.Pods.Item(n.namespace, n.name)
			a.updatePod(n, item, ok)
		}
		a.changes.Done(n)
	}
}

// list replaces the list of pods.
func (a *Auditor) list() {
	there := map[podName]bool{}
	kept := map[string]bool{}
	for _, item := range a.Pods.Pods() {
		n := podName{item.Namespace, item.Name}
		there[n], kept[item.UID] = true, true
		a.updatePod(n, item, true)
	}
	a.mu.Lock()
	var gone []podName
	for n := range a.named {
		if !there[n] {
			gone = append(gone, n)
		}
	}
	a.mu.Unlock()
	for _, n := range gone {
		a.updatePod(n, podcache.Item{}, false)
	}
	a.note("stored repairs cannot be removed", a.repairs.keep(kept))
}

// updatePod updates a pod from the cache, if it exists.
func (a *Auditor) updatePod(n podName, item podcache.Item, ok bool) {
	a.mu.Lock()
	old, known := a.named[n]
	if known && (!ok || old != item.UID) {
		p := a.pods[old]
		delete(a.pods, old)
		delete(a.named, n)
		if a.homes[p.watched] == old {
			delete(a.homes, p.watched)
		}
		defer a.forget(old)
	}
	defer a.mu.Unlock()
	if !ok {
		return
	}
	p, now := a.pods[item.UID], time.Now()
	if p == nil {
		p = newPod()
		a.pods[item.UID], a.named[n] = p, item.UID
	} else if p.item.ResourceVersion == item.ResourceVersion {
		return
	}
	p.item = item
	at := p.changeLimit.next(now)
	if at.Equal(now) { // one that changes on and on is not sought at each of its changes
		a.queue.Forget(item.UID)
	}
	a.plan(item.UID, at)
}

// plan plans a visit of a pod at a time, unless an earlier one is planned.
func (a *Auditor) plan(uid string, at time.Time) { a.queue.AddAfter(uid, time.Until(at)) }

// forget removes a deleted pod.
func (a *Auditor) forget(uid string) {
	a.queue.Forget(uid)
	a.failures.delays.Forget(uid)
	a.actions.delays.Forget(uid)
	a.note("stored repairs cannot be removed", a.repairs.remove(uid))
}

// note logs an error without consequences.
func (a *Auditor) note(text string, err error) {
	if err != nil {
		a.Log.Warn(text, zap.Error(err))
	}
}
