package cluster

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/plugin/text"
)

const (
	// firstUpdate is the least time between two writes of an event that is repeated, and doubles
	// with each up to longestUpdate.
	firstUpdate   = 10 * time.Second
	longestUpdate = 5 * time.Minute
	// seriesLife is how long the API server keeps an event that is not written any more
	// (kube-apiserver's --event-ttl).
	seriesLife = time.Hour
	updateTime = 10 * time.Second
)

// series are the events that were written: one that is repeated counts up in the same object, with
// the last message and time, as the kubelet's do. Repetitions between two writes are written
// together.
type series struct {
	first, longest time.Duration // pauses between writes

	mu     sync.Mutex
	known  map[subject]*written
	closed bool
}

// subject is what events of one series have in common.
type subject struct {
	kind, namespace, name, uid string
	warning                    bool
	reason                     string
}

// written is an event in the API server, and what is to be added to it.
type written struct {
	name    string
	first   time.Time
	count   int       // as it was written last
	at      time.Time // when
	pause   time.Duration
	busy    bool // it is being written
	pending int  // repetitions that are not written yet
	last    Event
	timer   *time.Timer // nil if nothing is planned
}

func newSeries() *series {
	return &series{first: firstUpdate, longest: longestUpdate, known: map[subject]*written{}}
}

func subjectOf(e Event) subject {
	return subject{e.About.Kind, e.About.Namespace, e.About.Name, e.About.UID, e.Warning, e.Reason}
}

// close ends what is planned. Nothing is written any more but what is being written.
func (s *series) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.known {
		if w.timer != nil {
			w.timer.Stop()
		}
	}
}

// Tell writes an event, its message on one line. Those about objects without a namespace are in the
// namespace default. A repetition is counted in the event that was written before: at once if that
// is some time ago, and otherwise, which is no error, later.
func (c *Client) Tell(ctx context.Context, e Event) error {
	e.Count = max(1, e.Count)
	key := subjectOf(e)
	c.series.mu.Lock()
	c.series.expire(time.Now())
	w := c.series.known[key]
	if w == nil {
		w = &written{name: eventName(e.About.Name), first: e.Time, pause: c.series.first, busy: true}
		c.series.known[key] = w
		c.series.mu.Unlock()
		return c.begin(ctx, key, w, e)
	}
	w.pending, w.last = w.pending+e.Count, e
	due := !w.busy && time.Since(w.at) >= w.pause
	if !due {
		c.plan(key, w)
	}
	c.series.mu.Unlock()
	if due {
		c.update(ctx, key)
	}
	return nil
}

// expire forgets events that the API server does not have any more.
func (s *series) expire(now time.Time) {
	for key, w := range s.known {
		if !w.busy && w.pending == 0 && now.Sub(w.at) > seriesLife {
			delete(s.known, key)
		}
	}
}

// begin writes the first event of a series.
func (c *Client) begin(ctx context.Context, key subject, w *written, e Event) error {
	err := c.create(ctx, w, e, e.Count)
	c.series.mu.Lock()
	defer c.series.mu.Unlock()
	w.busy, w.at, w.count = false, time.Now(), e.Count
	switch {
	case err != nil && w.pending == 0:
		delete(c.series.known, key)
	case err != nil: // repetitions came meanwhile, and write it
		w.count = 0
		c.plan(key, w)
	case w.pending > 0:
		c.plan(key, w)
	}
	return err
}

// plan has the pending repetitions written when the pause is over. The lock is held.
func (c *Client) plan(key subject, w *written) {
	if w.timer != nil || w.busy || c.series.closed {
		return
	}
	w.timer = time.AfterFunc(time.Until(w.at.Add(w.pause)), func() {
		ctx, cancel := context.WithTimeout(context.Background(), updateTime)
		defer cancel()
		c.update(ctx, key)
	})
}

// update writes the pending repetitions of a series. What fails is tried again after the next
// pause.
func (c *Client) update(ctx context.Context, key subject) {
	c.series.mu.Lock()
	w := c.series.known[key]
	if w == nil || w.busy || w.pending == 0 || c.series.closed {
		c.series.mu.Unlock()
		return
	}
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.busy = true
	added, e, total := w.pending, w.last, w.count+w.pending
	c.series.mu.Unlock()

	err := c.patch(ctx, w, e, total)
	if IsAnswer(err) { // it has expired, or may not be changed
		w.name = eventName(e.About.Name)
		err = c.create(ctx, w, e, total)
	}

	c.series.mu.Lock()
	defer c.series.mu.Unlock()
	w.busy, w.at, w.pause = false, time.Now(), min(2*w.pause, c.series.longest)
	if err == nil || IsAnswer(err) || time.Since(e.Time) > seriesLife {
		w.count, w.pending = total, w.pending-added
	}
	if w.pending > 0 {
		c.plan(key, w)
	}
}

// create makes an event.
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

// patch counts repetitions in an event.
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

func messageOf(e Event) string { return text.Cut(text.Printable(e.Message), maxMessage) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
