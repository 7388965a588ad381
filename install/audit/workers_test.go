package audit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestWorkersNeverAuditAPodConcurrently schedules audits and deletes pods while audits run. Two
// workers never audit one pod at the same time, each audit starts at most 20 ms after the earliest
// scheduled time, and the queue is empty at the end.
func TestWorkersNeverAuditAPodConcurrently(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A step n concerns the pod n%8. If n/8%4 is 0, it deletes the pod; otherwise it schedules
		// an audit of the pod after n/32 milliseconds.
		steps := rapid.SliceOfN(rapid.IntRange(0, 4*8*20), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			a := &Auditor{begin: time.Now()}
			a.queue = newQueue(a.begin)
			var mu sync.Mutex
			busy, due, existing := map[string]bool{}, map[string]time.Time{}, map[string]bool{}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				a.runWorkers(ctx, func(_ context.Context, uid string) {
					mu.Lock()
					if busy[uid] {
						t.Errorf("%s is audited by two workers at the same time", uid)
					}
					if !existing[uid] {
						mu.Unlock()
						return
					}
					busy[uid] = true
					if at, planned := due[uid]; planned && time.Since(at) > 20*time.Millisecond {
						t.Errorf("%s is audited %v after the scheduled time, want at most 20 ms", uid, time.Since(at))
					}
					delete(due, uid)
					mu.Unlock()
					time.Sleep(3 * time.Millisecond)
					mu.Lock()
					busy[uid] = false
					mu.Unlock()
				})
			}()
			for _, n := range steps {
				uid := fmt.Sprint(n % 8)
				mu.Lock()
				if n/8%4 == 0 {
					delete(due, uid)
					delete(existing, uid)
					a.queue.Forget(uid)
				} else {
					at := time.Now().Add(time.Duration(n/32) * time.Millisecond)
					if was, planned := due[uid]; !planned || at.Before(was) {
						due[uid] = at
					}
					existing[uid] = true
					a.scheduleAudit(uid, at)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(due) > 0 {
				t.Errorf("pods that are scheduled and not audited after a minute: %v, want none", due)
			}
			if _, running := a.Progress(); running || a.queue.Len() > 0 {
				t.Errorf("after a minute an audit is running: %t, and %d pods are queued; want none",
					running, a.queue.Len())
			}
			cancel()
			<-done
		})
	})
}

// TestLongAuditDoesNotDelayOtherPods checks that one worker audits pods that are due while
// another is busy.
func TestLongAuditDoesNotDelayOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Auditor{begin: time.Now()}
		a.queue = newQueue(a.begin)
		ctx, cancel := context.WithCancel(t.Context())
		audited := make(chan string, 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.runWorkers(ctx, func(ctx context.Context, uid string) {
				audited <- uid
				<-ctx.Done()
			})
		}()
		synctest.Wait()
		a.scheduleAudit("long", time.Now())
		a.scheduleAudit("next", time.Now().Add(time.Millisecond))
		if first := <-audited; first != "long" {
			t.Errorf("%s was audited first, want long", first)
		}
		begin := time.Now()
		<-audited
		if waited := time.Since(begin); waited > time.Millisecond {
			t.Errorf("the other pod was audited after %v, want at most 1 ms", waited)
		}
		cancel()
		<-done
	})
}

// TestSearchesAreCombined checks that the next search for pods with equally many failed searches is
// at the same time, regardless of when each search failed.
func TestSearchesAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		searches := newAlignedDelays(time.Now())
		var times []time.Time
		for i := range 3 {
			times = append(times, time.Now().Add(searches.When(fmt.Sprint(i))))
			time.Sleep(80 * time.Millisecond)
		}
		for _, at := range times {
			if !at.Equal(times[0]) || !at.Equal(searches.begin.Add(initialSearchBackoff)) {
				t.Errorf("searches at %v, want all at the first multiple of initialSearchBackoff", times)
			}
		}
	})
}

// TestCanceledWorkersDoNotDrainTheQueue checks that queued pods are not audited after the context
// is canceled.
func TestCanceledWorkersDoNotDrainTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Auditor{begin: time.Now()}
		a.queue = newQueue(a.begin)
		for i := range 10 {
			a.queue.Add(fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a.runWorkers(ctx, func(context.Context, string) { t.Error("a pod was audited after the context was canceled") })
	})
}

func TestBackoffDoubles(t *testing.T) {
	b, now := newBackoff(), time.Unix(1000, 0)
	var a attempt
	var delays []string
	for range 9 {
		b.recordAttempt("web", &a, now)
		delays = append(delays, a.next.Sub(now).String())
	}
	if got := fmt.Sprint(delays); got != "[1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s]" {
		t.Errorf("delays %s, want delays that double from 1s to 1m", got)
	}
	now = now.Add(backoffReset + time.Second)
	b.recordAttempt("web", &a, now)
	if delay := a.next.Sub(now); delay != time.Second {
		t.Errorf("the delay after backoffReset is %v, want 1s", delay)
	}
}

// TestScheduledTimesAreMonotonic checks that scheduled times have a reading of the monotonic clock,
// so that setting back the clock does not delay audits.
func TestScheduledTimesAreMonotonic(t *testing.T) {
	a := &Auditor{begin: time.Now(), pods: map[string]*pod{"web": {}}}
	a.Compare, a.Interval = true, time.Minute
	now := time.Now()
	next := (&auditRun{Auditor: a, uid: "web", now: now}).nextPeriodicAudit()
	if wait := next.Sub(now); !strings.Contains(next.String(), " m=") || wait <= 0 ||
		wait > time.Minute {
		t.Errorf("the next audit is at %v, %v from now, want a monotonic time within the interval", next, wait)
	}
	searches := newAlignedDelays(a.begin)
	if wait := searches.When("web"); wait <= 0 || wait > initialSearchBackoff {
		t.Errorf("the next search is %v from now, want within initialSearchBackoff", wait)
	}
}
