package cluster_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// repeat sends count events of one series, with times a second apart, and returns the first and the
// last time.
func repeat(t *testing.T, c *cluster.Client, count int) (first, last time.Time) {
	t.Helper()
	first = time.Now().Truncate(time.Second)
	for i := range count {
		last = first.Add(time.Duration(i) * time.Second)
		if err := c.SendEvent(t.Context(), cluster.Event{
			About: cluster.NodeObject("node-1"), Warning: true, Reason: "ConflictingWriter",
			Message: fmt.Sprint("repetition ", i+1),
			Node:    "node-1", Time: last,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return first, last
}

// waitCount waits until the last event has at least the count, and returns the event.
func waitCount(t *testing.T, server *apiservertest.Server, want int) apiservertest.Event {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(30 * time.Second)
	for {
		events := server.Events()
		if e := events[len(events)-1]; e.Count >= want {
			return e
		}
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("the last event has not reached the count %d within 30 s: %+v", want, events)
		}
	}
}

// TestRepetitionsAreCounted checks that repetitions are written as one event, with their number and
// with the first and the last time, by few requests.
func TestRepetitionsAreCounted(t *testing.T) {
	server, c := start(t)
	c.SetUpdateIntervals(50*time.Millisecond, time.Second)
	first, last := repeat(t, c, 100)
	e := waitCount(t, server, 100)
	if len(server.Events()) != 1 || e.Count != 100 || e.Message != "repetition 100" ||
		!e.FirstTimestamp.Equal(first) || !e.LastTimestamp.Equal(last) {
		t.Errorf("%d events, the last %+v; want one event with count 100", len(server.Events()), e)
	}
	if n := server.EventUpdates(); n > 10 {
		t.Errorf("%d updates for 100 repetitions, want at most 10", n)
	}
	if err := c.SendEvent(t.Context(), cluster.Event{
		About: cluster.NodeObject("node-1"), Warning: true, Reason: "ConflictingWriter",
		Message: "often", Time: last, Count: 23,
	}); err != nil {
		t.Error(err)
	}
	if e := waitCount(t, server, 101); e.Count != 123 {
		t.Errorf("count %d, want 123: %+v", e.Count, e)
	}
}

// TestDifferentEventsAreNotAggregated checks that events with different reasons, types or objects
// are not combined.
func TestDifferentEventsAreNotAggregated(t *testing.T) {
	server, c := start(t)
	pod := cluster.Object{Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "web", UID: "1"}
	recreated := pod
	recreated.UID = "2"
	for _, e := range []cluster.Event{
		{About: pod, Reason: "A"},
		{About: pod, Reason: "B"},
		{About: pod, Reason: "A", Warning: true},
		{About: recreated, Reason: "A"},
	} {
		if e.Time = time.Now(); c.SendEvent(t.Context(), e) != nil {
			t.Error("SendEvent returned an error")
		}
	}
	if got := server.Events(); len(got) != 4 {
		t.Errorf("%d events, want 4", len(got))
	}
}

// TestAnEventThatCannotBeChangedIsCreatedAgain checks that an event that has expired, or that the
// agent must not change, is created again with all repetitions.
func TestAnEventThatCannotBeChangedIsCreatedAgain(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		server, c := start(t)
		c.SetUpdateIntervals(time.Millisecond, time.Millisecond)
		server.RefuseEventUpdates(code)
		repeat(t, c, 2)
		if e := waitCount(t, server, 2); len(server.Events()) != 2 || e.Count != 2 {
			t.Errorf("updates are refused with %d: events %+v, want a second one with count 2", code, server.Events())
		}
	}
}

// TestRepetitionsAreKeptDuringAnOutage checks that repetitions are kept while the API server does
// not answer.
func TestRepetitionsAreKeptDuringAnOutage(t *testing.T) {
	server, c := start(t)
	c.SetUpdateIntervals(time.Millisecond, 2*time.Millisecond)
	repeat(t, c, 1)
	server.RefuseEventUpdates(http.StatusInternalServerError)
	repeat(t, c, 3)
	server.RefuseEventUpdates(0)
	if e := waitCount(t, server, 4); len(server.Events()) != 1 || e.Count != 4 {
		t.Errorf("events %+v, want one event with count 4", server.Events())
	}
}

// TestSendEventFailsIfAFirstEventIsRejected checks that SendEvent returns an error if the API
// server rejects the first event of a series, so that the caller can send it again.
func TestSendEventFailsIfAFirstEventIsRejected(t *testing.T) {
	server, c := start(t)
	e := cluster.Event{About: cluster.NodeObject("node-1"), Reason: "R", Time: time.Now()}
	server.SetToken("another")
	if err := c.SendEvent(t.Context(), e); err == nil {
		t.Error("SendEvent returned no error for a rejected event")
	}
	if len(server.Events()) != 0 {
		t.Errorf("events %+v, want none", server.Events())
	}
}

// TestCloseEndsAWrite checks that Close does not wait for an API server that does not answer.
func TestCloseEndsAWrite(t *testing.T) {
	server, c := start(t)
	c.SetUpdateIntervals(time.Millisecond, time.Millisecond)
	c.SetUpdateTimeout(time.Hour)
	repeat(t, c, 1)
	server.Always(apiservertest.NoReply())
	before := len(server.Requests())
	repeat(t, c, 1)
	for len(server.Requests()) == before {
		time.Sleep(time.Millisecond)
	}
	c.Close()
}
