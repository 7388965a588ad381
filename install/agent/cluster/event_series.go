package cluster

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	// minUpdateInterval is the minimum time between the creation of an event and its first update.
	// The minimum time to the next update doubles with each update up to maxUpdateInterval.
	minUpdateInterval = 10 * time.Second
	maxUpdateInterval = 5 * time.Minute
	// eventLife is the time after which the API server deletes an event that is not updated
	// (kube-apiserver's --event-ttl).
	eventLife = time.Hour
	// maxUpdateTime is the time limit for updating an event.
	maxUpdateTime = 10 * time.Second
)

// eventSeries contains the events that the client has written, one for each key. A repetition
// increases the count of the written event, and replaces its message and last time, as in the
// kubelet's events. A worker, which the first event starts, combines the repetitions between two
// updates.
type eventSeries struct {
	minInterval, maxInterval time.Duration // between two updates of an event
	updateTime               time.Duration // maxUpdateTime, except in tests
	workers                  sync.WaitGroup
	// stop cancels the current request; nil before the first event.
	stop context.CancelFunc

	mu     sync.Mutex
	events map[eventKey]*writtenEvent
	closed bool
	// queue contains the keys of the events to update; nil before the first event.
	queue workqueue.TypedRateLimitingInterface[eventKey]
}

// An eventKey contains the fields that all repetitions of an event have in common. The object has
// no resourceVersion.
type eventKey struct {
	about   Object
	warning bool
	reason  string
}

// A writtenEvent is an event in the API server, with the repetitions that are not written yet.
type writtenEvent struct {
	name    string
	first   time.Time
	count   int       // last written count
	at      time.Time // time of the last write
	queued  bool      // it is being written or waits for its next update
	pending int       // number of repetitions that are not written yet
	last    Event     // last repetition
}

func newEventSeries() *eventSeries {
	return &eventSeries{
		minInterval: minUpdateInterval, maxInterval: maxUpdateInterval, updateTime: maxUpdateTime,
		events: map[eventKey]*writtenEvent{},
	}
}

func keyOf(e Event) eventKey {
	e.About.ResourceVersion = ""
	return eventKey{e.About, e.Warning, e.Reason}
}

// close discards pending updates, cancels a running one and waits for its end.
func (s *eventSeries) close() {
	s.mu.Lock()
	s.closed = true
	queue, stop := s.queue, s.stop
	s.mu.Unlock()
	if queue != nil {
		stop()
		queue.ShutDown()
		s.workers.Wait()
	}
}

// SendEvent writes an event with its message on one line. Events about objects without a namespace
// are in the namespace default. A repetition creates no event: it increases the count of the
// existing event when the next update of that event is due. SendEvent does not return the error of
// this update.
func (c *Client) SendEvent(ctx context.Context, e Event) error {
	e.Count = max(1, e.Count)
	key, s := keyOf(e), c.series
	s.mu.Lock()
	c.startWorker()
	s.expire(time.Now())
	w := s.events[key]
	if w == nil {
		w = &writtenEvent{name: eventName(e.About.Name), first: e.Time, queued: true}
		s.events[key] = w
		s.mu.Unlock()
		return c.writeFirst(ctx, key, w, e)
	}
	defer s.mu.Unlock()
	w.pending, w.last = w.pending+e.Count, e
	if !w.queued {
		w.queued = true
		s.queue.Add(key)
	}
	return nil
}

// startWorker starts the worker unless it is running. The caller holds the lock.
func (c *Client) startWorker() {
	s := c.series
	if s.queue != nil || s.closed {
		return
	}
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[eventKey](s.minInterval,
		s.maxInterval)
	queue := workqueue.NewTypedRateLimitingQueue(delays)
	ctx, stop := context.WithCancel(context.Background())
	s.queue, s.stop = queue, stop
	s.workers.Go(func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}
			c.update(ctx, key)
			queue.Done(key)
		}
	})
}

// expire removes events that the API server has deleted.
func (s *eventSeries) expire(now time.Time) {
	for key, w := range s.events {
		if !w.queued && now.Sub(w.at) > eventLife {
			delete(s.events, key)
			s.queue.Forget(key)
		}
	}
}

// writeFirst writes the first event with a key.
func (c *Client) writeFirst(ctx context.Context, key eventKey, w *writtenEvent, e Event) error {
	err := c.create(ctx, w, e, e.Count)
	s := c.series
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at, w.count = time.Now(), e.Count
	if err != nil {
		w.count = 0 // the next update creates the event with the repetitions since then
	}
	if s.closed || err != nil && w.pending == 0 {
		delete(s.events, key)
		return err
	}
	s.queue.AddRateLimited(key)
	return err
}

// update writes the pending repetitions of an event. If this fails, the next update writes them,
// unless the API server has rejected them permanently or they are older than eventLife.
func (c *Client) update(ctx context.Context, key eventKey) {
	s := c.series
	s.mu.Lock()
	w := s.events[key]
	if w == nil || s.closed {
		s.mu.Unlock()
		return
	}
	if w.pending == 0 {
		w.queued = false
		s.mu.Unlock()
		return
	}
	added, e, total := w.pending, w.last, w.count+w.pending
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, s.updateTime)
	defer cancel()
	err := c.patch(ctx, w, e, total)
	if IsPermanent(err) { // the event has expired, or may not be changed
		w.name = eventName(e.About.Name)
		err = c.create(ctx, w, e, total)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = time.Now()
	if err == nil || IsPermanent(err) || time.Since(e.Time) > eventLife {
		w.count, w.pending = total, w.pending-added
	}
	s.queue.AddRateLimited(key)
}

// create creates an event.
func (c *Client) create(ctx context.Context, w *writtenEvent, e Event, count int) error {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return c.do(ctx, http.MethodPost, eventsPath(e), map[string]any{
		"kind": "Event", "apiVersion": "v1",
		"metadata":       map[string]string{"name": w.name, "namespace": namespaceOf(e)},
		"involvedObject": e.About, "type": kind, "reason": e.Reason, "message": messageOf(e),
		"source":         map[string]string{"component": component, "host": e.Node},
		"firstTimestamp": stamp(w.first), "lastTimestamp": stamp(e.Time), "count": count,
		"reportingComponent": component, "reportingInstance": e.Node,
	}, nil)
}

// patch sets the count of an event, and the message and time of its last repetition.
func (c *Client) patch(ctx context.Context, w *writtenEvent, e Event, count int) error {
	return c.do(ctx, http.MethodPatch, eventsPath(e)+"/"+url.PathEscape(w.name), map[string]any{
		"message": messageOf(e), "lastTimestamp": stamp(e.Time), "count": count,
	}, nil)
}

func eventsPath(e Event) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespaceOf(e)) + "/events"
}

func namespaceOf(e Event) string {
	return cmp.Or(e.About.Namespace, "default")
}

func messageOf(e Event) string { return text.Truncate(rules.Printable(e.Message), maxMessage) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
