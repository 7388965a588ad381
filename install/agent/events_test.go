package agent

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/credential"
)

// TestEachProblemOfTheNodeIsReportedOnce checks that the beginning, the end and each recurrence of
// a problem are reported once, and that current problems are reported after an outage of the API
// server.
func TestEachProblemOfTheNodeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		unavailable := false
		ne := newNodeEvents(func(_ context.Context, e cluster.Event) error {
			if unavailable {
				return errors.New("unavailable")
			}
			text := e.Reason + " " + e.Message
			if e.Count > 1 {
				text += " " + strconv.Itoa(e.Count)
			}
			events = append(events, text)
			return nil
		}, "node-1", zap.NewNop())
		ne.settle = 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ne.run(ctx)
		disk, writer := problemEvent{reason: "DiskFull", message: "the disk"},
			problemEvent{"ConflictingWriter", "cilium", 3}
		for _, step := range []struct {
			name        string
			unavailable bool
			after       time.Duration // the time that passes before the events are compared
			problems    []problemEvent
			want        string // the events so far
		}{
			{"no problem", false, 0, nil, ""},
			{"a full disk", false, 0, []problemEvent{disk}, "DiskFull the disk"},
			{"the disk is still full", false, time.Hour, []problemEvent{disk}, "DiskFull the disk"},
			{
				"a conflicting writer", false, 0,
				[]problemEvent{disk, writer},
				"DiskFull the disk, ConflictingWriter cilium 3",
			},
			{
				"all problems are resolved", false, time.Second, nil,
				"DiskFull the disk, ConflictingWriter cilium 3, Installed " + recoveredMessage,
			},
			{
				"the writer continues immediately", false, time.Second,
				[]problemEvent{writer},
				"DiskFull the disk, ConflictingWriter cilium 3, Installed " + recoveredMessage +
					", ConflictingWriter cilium 3",
			},
			{
				"the writer has written twice more", false, time.Hour,
				[]problemEvent{{"ConflictingWriter", "cilium", 5}},
				"DiskFull the disk, ConflictingWriter cilium 3, Installed " + recoveredMessage +
					", ConflictingWriter cilium 3, ConflictingWriter cilium 2",
			},
			{
				"a problem while the API server is unavailable", true, time.Minute,
				[]problemEvent{disk, {"ConflictingWriter", "cilium", 5}},
				"DiskFull the disk, ConflictingWriter cilium 3, Installed " + recoveredMessage +
					", ConflictingWriter cilium 3, ConflictingWriter cilium 2",
			},
			{
				"the API server is available, and the writer's count was reset", false, time.Minute,
				[]problemEvent{disk, writer},
				"DiskFull the disk, ConflictingWriter cilium 3, Installed " + recoveredMessage +
					", ConflictingWriter cilium 3, ConflictingWriter cilium 2, DiskFull the disk, ConflictingWriter cilium 3",
			},
		} {
			unavailable = step.unavailable
			ne.set(step.problems, len(step.problems) == 0)
			synctest.Wait()
			time.Sleep(step.after)
			synctest.Wait()
			if got := strings.Join(events, ", "); got != step.want {
				t.Errorf("%s: sent %s\nwant %s", step.name, got, step.want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// TestARejectedNodeEventDelaysNoOther checks that an event that the API server rejects permanently
// is dropped, and that the others are sent. A missing permission may be granted later: then nothing
// is dropped.
func TestARejectedNodeEventDelaysNoOther(t *testing.T) {
	for _, row := range []struct {
		code     int
		requests int // that are rejected
		want     string
	}{
		{422, 2, "ConflictingWriter, DiskFull, Installed"},
		{403, 1, "Past, OtherPast, ConflictingWriter, DiskFull, Installed"},
	} {
		t.Run(strconv.Itoa(row.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events []string
				requests := 0
				var accepted atomic.Bool
				ne := newNodeEvents(func(_ context.Context, e cluster.Event) error {
					if strings.HasSuffix(e.Reason, "Past") && !accepted.Load() {
						requests++
						return &cluster.StatusError{Code: row.code}
					}
					events = append(events, e.Reason)
					return nil
				}, "node-1", zap.NewNop())
				ne.settle = 0
				ne.notePast(problemEvent{reason: "Past", message: "a"})
				ne.notePast(problemEvent{reason: "OtherPast", message: "b"})
				ne.set([]problemEvent{{"ConflictingWriter", "c", 1}, {reason: "DiskFull", message: "d"}}, false)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go ne.run(ctx)
				synctest.Wait()
				accepted.Store(row.code == 403)
				time.Sleep(10 * time.Minute)
				ne.set(nil, true)
				synctest.Wait()
				if got := strings.Join(events, ", "); got != row.want {
					t.Errorf("sent %s, want %s", got, row.want)
				}
				if requests != row.requests {
					t.Errorf("%d requests for rejected events, want %d", requests, row.requests)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestNodeEventsWaitAfterAFailure checks that, while the API server is unavailable, the requests do
// not follow the reconciliations, each of which sets the same problem.
func TestNodeEventsWaitAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		ne := newNodeEvents(func(context.Context, cluster.Event) error {
			requests.Add(1)
			return errors.New("unavailable")
		}, "node-1", zap.NewNop())
		ne.settle = 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ne.run(ctx)
		for range 10 {
			ne.set([]problemEvent{{reason: "DiskFull", message: "the disk"}}, false)
			synctest.Wait()
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d requests after the problem was set ten times, want 1", n)
		}
		time.Sleep(eventRetry/2 - time.Second)
		synctest.Wait()
		if n := requests.Load(); n != 1 {
			t.Errorf("%d requests before the minimum retry interval has passed, want 1", n)
		}
		time.Sleep(eventRetry + time.Second) // the longest interval, in which three retries fit
		synctest.Wait()
		before := requests.Load()
		if before < 2 || before > 4 {
			t.Errorf("%d requests, want the first one and one to three retries", before)
		}
		ne.retry()
		synctest.Wait()
		if n := requests.Load(); n != before+1 {
			t.Errorf("%d requests after retry, want 1", n-before)
		}
		cancel()
		synctest.Wait()
	})
}

// TestShortRejectionIsNotReported checks that rejected credentials are reported only if the
// rejection has lasted for a while.
func TestShortRejectionIsNotReported(t *testing.T) {
	now := time.Now()
	for since, want := range map[time.Duration]bool{time.Second: false, time.Minute: true} {
		e, ok := rejectionEvent(
			credential.Status{Problem: errors.New("401"), Since: now.Add(-since)}, now)
		if ok != want || !strings.HasPrefix(e.message, "401, from ") {
			t.Errorf("after %s: reported: %t, want %t; message %q", since, ok, want, e.message)
		}
	}
}

// TestShortProblemsOfTheNodeAreNotReported checks that a problem without a count is reported only
// if it lasts, and that an exit reports it immediately.
func TestShortProblemsOfTheNodeAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		ne := newNodeEvents(func(_ context.Context, e cluster.Event) error {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e.Reason)
			return nil
		}, "node-1", zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ne.run(ctx)
		disk, bypass := problemEvent{reason: "DiskFull"}, problemEvent{"PluginBypassed", "a pod", 1}
		wantSent := func(when, want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(events, " "); got != want {
				t.Errorf("%s: sent %q, want %q", when, got, want)
			}
		}
		ne.set([]problemEvent{disk}, false)
		time.Sleep(settleTime - time.Second)
		ne.set(nil, true)
		time.Sleep(time.Hour)
		wantSent("after a short problem", "")
		ne.set([]problemEvent{disk}, false)
		time.Sleep(settleTime - time.Second)
		ne.set([]problemEvent{disk, bypass}, false)
		wantSent("after pods without redirection", "PluginBypassed")
		time.Sleep(2 * time.Second)
		wantSent("after a lasting problem", "PluginBypassed DiskFull")
		ne.set([]problemEvent{{reason: "DirectoryReplaced"}}, false)
		wantSent("after a new problem", "PluginBypassed DiskFull")
		ne.deliver(ctx, time.Now(), 0)
		wantSent("at an exit", "PluginBypassed DiskFull DirectoryReplaced")
		network := problemEvent{reason: "NoNetworkConfiguration"}
		ne.set([]problemEvent{network}, false)
		time.Sleep(noNetworkSettleTime - time.Second)
		ne.set(nil, false)
		time.Sleep(time.Hour)
		wantSent("before the node is ready", "PluginBypassed DiskFull DirectoryReplaced")
		ne.set(nil, true)
		wantSent("when the node is ready", "PluginBypassed DiskFull DirectoryReplaced Installed")
		ne.set([]problemEvent{network}, false)
		time.Sleep(noNetworkSettleTime)
		wantSent("without a network",
			"PluginBypassed DiskFull DirectoryReplaced Installed NoNetworkConfiguration")
		cancel()
		synctest.Wait()
	})
}

// TestPastEventsAreBounded checks that problems that occur while the API server is unavailable are
// merged, and that each occurrence is counted.
func TestPastEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var available atomic.Bool
		sent, occurrences, last := 0, 0, ""
		ne := newNodeEvents(func(_ context.Context, e cluster.Event) error {
			if !available.Load() {
				return errors.New("unavailable")
			}
			if sent++; e.Reason == hostRulesReason {
				occurrences, last = occurrences+max(1, e.Count), e.Message
			}
			return nil
		}, "node-1", zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ne.run(ctx)
		const changes = 10_000
		ne.notePast(problemEvent{reason: credentialsReason, message: "rejected"})
		for i := range changes {
			ne.notePast(problemEvent{reason: hostRulesReason, message: "changed by pid " + strconv.Itoa(i/2)})
		}
		synctest.Wait()
		available.Store(true)
		time.Sleep(2 * eventRetry)
		synctest.Wait()
		if want := "changed by pid " + strconv.Itoa((changes-1)/2); sent > maxPast || occurrences != changes || last != want {
			t.Errorf("sent %d events with %d changes, the last one %q; want at most %d events with %d changes, the last one %q",
				sent, occurrences, last, maxPast, changes, want)
		}
		cancel()
		synctest.Wait()
	})
}
