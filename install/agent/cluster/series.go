package cluster

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/plugin/text"
)

const (
	// firstUpdate is the minimum time between two updates of a repeated event. It doubles with each
	// update up to maxUpdateInterval.
	firstUpdate       = 10 * time.Second
	maxUpdateInterval = 5 * time.Minute
	// seriesLife is the time after which the API server deletes an event that is not updated
	// (kube-apiserver's --event-ttl).
	seriesLife = time.Hour
	// maxUpdateTime limits an update.
	maxUpdateTime = 10 * time.Second
)

// series are the written events. A repetition increases the count in the same object, with the last
// message and time, like the kubelet's events. A worker, which the first event starts, combines
// repetitions between two updates.
type series struct {
	first, longest time.Duration // pauses between writes
	updateTime     time.Duration // maxUpdateTime, except in tests
	workers        sync.WaitGroup
	stop           context.CancelFunc // cancels the current request; nil before the first event

	mu     sync.Mutex
	known  map[subject]*written
	closed bool
	// queue contains the series to update; nil before the first event.
	queue workqueue.TypedRateLimitingInterface[subject]
}

// subject is the common part of the events of a series.
type subject struct {
	kind, namespace, name, uid string
	warning                    bool
	reason                     string
}

// written is an event in the API server, with its pending changes.
type written struct {
	name    string
	first   time.Time
	count   int       // last written count
	at      time.Time // time of the last write
	queued  bool      // it is being written or waits for its next update
	pending int       // repetitions that are not written yet
	last    Event
}

func newSeries() *series {
	return &series{
		first: firstUpdate, longest: maxUpdateInterval, updateTime: maxUpdateTime,
		known: map[subject]*written{},
	}
}

func subjectOf(e Event) subject {
	return subject{e.About.Kind, e.About.Namespace, e.About.Name, e.About.UID, e.Warning, e.Reason}
}

// close cancels pending updates and waits for running ones.
func (s *series) close() {
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
// are in the namespace default. A repetition is counted in the existing event, immediately or later
// depending on the time since the last update.
func (c *Client) SendEvent(ctx context.Context, e Event) error {
	e.Count = max(1, e.Count)
	key, s := subjectOf(e), c.series
	s.mu.Lock()
	c.startSeries()
	s.expire(time.Now())
	w := s.known[key]
	if w == nil {
		w = &written{name: eventName(e.About.Name), first: e.Time, queued: true}
		s.known[key] = w
		s.mu.Unlock()
		return c.begin(ctx, key, w, e)
	}
	defer s.mu.Unlock()
	w.pending, w.last = w.pending+e.Count, e
	if !w.queued {
		w.queued = true
		s.queue.Add(key)
	}
	return nil
}

// startSeries starts the worker unless it is running. The caller holds the lock.
func (c *Client) startSeries() {
	s := c.series
	if s.queue != nil || s.closed {
		return
	}
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[subject](s.first, s.longest)
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
func (s *series) expire(now time.Time) {
	for key, w := range s.known {
		if !w.queued && now.Sub(w.at) > seriesLife {
			s.forget(key)
		}
	}
}

func (s *series) forget(key subject) {
	delete(s.known, key)
	s.queue.Forget(key)
}

// begin writes the first event of a series.
func (c *Client) begin(ctx context.Context, key subject, w *written, e Event) error {
	err := c.create(ctx, w, e, e.Count)
	s := c.series
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at, w.count = time.Now(), e.Count
	if err != nil {
		w.count = 0 // repetitions since then write it
	}
	if s.closed || err != nil && w.pending == 0 {
		delete(s.known, key)
		return err
	}
	s.queue.AddRateLimited(key)
	return err
}

// update writes the pending repetitions of a series. A failed update is repeated at the next
// update.
func (c *Client) update(ctx context.Context, key subject) {
	s := c.series
	s.mu.Lock()
	w := s.known[key]
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
	if IsAnswer(err) { // it has expired, or may not be changed
		w.name = eventName(e.About.Name)
		err = c.create(ctx, w, e, total)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = time.Now()
	if err == nil || IsAnswer(err) || time.Since(e.Time) > seriesLife {
		w.count, w.pending = total, w.pending-added
	}
	s.queue.AddRateLimited(key)
}

// create creates an event.
func (c *Client) create(ctx context.Context, w *written, e Event, count int) error {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return c.do(ctx, http.MethodPost, eventsOf(e), nil, map[string]any{
		"kind": "Event", "apiVersion": "v1",
		"metadata":       Meta{Name: w.name, Namespace: namespaceOf(e)},
		"involvedObject": e.About, "type": kind, "reason": e.Reason, "message": messageOf(e),
		"source":         map[string]string{"component": component, "host": e.Node},
		"firstTimestamp": stamp(w.first), "lastTimestamp": stamp(e.Time), "count": count,
		"reportingComponent": component, "reportingInstance": e.Node,
	}, nil)
}

// patch increases the count of an event.
func (c *Client) patch(ctx context.Context, w *written, e Event, count int) error {
	return c.do(ctx, http.MethodPatch, eventsOf(e)+"/"+url.PathEscape(w.name), nil, map[string]any{
		"message": messageOf(e), "lastTimestamp": stamp(e.Time), "count": count,
	}, nil)
}

func eventsOf(e Event) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespaceOf(e)) + "/events"
}

func namespaceOf(e Event) string {
	if e.About.Namespace == "" {
		return "default"
	}
	return e.About.Namespace
}

func messageOf(e Event) string { return text.Truncate(text.Printable(e.Message), maxMessage) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
