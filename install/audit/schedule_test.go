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

// Whatever is planned and dropped while visits take their time: no pod is visited twice at a time,
// each one at the earliest time that was planned or after it, and nothing is kept at the end.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 4*8*20), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule()
			var mu sync.Mutex
			busy, due := map[string]bool{}, map[string]time.Time{}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.run(ctx, 2, func(_ context.Context, uid string) {
					mu.Lock()
					if busy[uid] {
						t.Errorf("%s is visited twice at a time", uid)
					}
					busy[uid] = true
					if at, planned := due[uid]; planned && !time.Now().Before(at) {
						if repairUnprotected := time.Since(at); repairUnprotected > 20*time.Millisecond {
							t.Errorf("%s is visited %v too late", uid, repairUnprotected)
						}
						delete(due, uid)
					}
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
					s.drop(uid)
				} else {
					at := time.Now().Add(time.Duration(n/32) * time.Millisecond)
					if was, planned := due[uid]; !planned || at.Before(was) {
						due[uid] = at
					}
					s.plan(uid, at)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(due) > 0 {
				t.Errorf("never visited: %v", due)
			}
			for n := range 8 {
				s.drop(fmt.Sprint(n))
			}
			if s.len() > 0 || len(s.queue) > 0 {
				t.Error("something is kept")
			}
			cancel()
			<-done
		})
	})
}

// While one worker is busy for long, another visits what was planned beside it.
func TestALongVisitKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule()
		ctx, cancel := context.WithCancel(t.Context())
		visited := make(chan string, 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx, 2, func(ctx context.Context, uid string) {
				visited <- uid
				<-ctx.Done()
			})
		}()
		synctest.Wait()
		s.plan("long", time.Now())
		s.plan("next", time.Now().Add(time.Millisecond))
		if first := <-visited; first != "long" {
			t.Errorf("%s is first", first)
		}
		begin := time.Now()
		<-visited
		if repairUnprotected := time.Since(begin); repairUnprotected > time.Millisecond {
			t.Errorf("the other one is visited after %v", repairUnprotected)
		}
		cancel()
		<-done
	})
}

func TestPausesDouble(t *testing.T) {
	var a attempts
	now := time.Unix(1000, 0)
	var pauses []string
	for range 12 {
		a.note(now)
		pauses = append(pauses, a.next().Sub(now).String())
	}
	if got := fmt.Sprint(pauses); got != "[0s 0s 1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s 1m0s]" {
		t.Error(got)
	}
	a.note(now.Add(calm + time.Second))
	if a.times != 1 {
		t.Error("a calm is not seen")
	}
}

// What is planned by the wall clock would not come for an hour after somebody sets that back by an
// hour.
func TestTurnsKeepToTheMonotonicClock(t *testing.T) {
	a := &Auditor{begin: time.Now(), schedule: newSchedule(), pods: map[string]*pod{"web": {}}}
	a.Compare, a.Interval = true, time.Minute
	now := time.Now()
	turn := (&reconciliation{Auditor: a, uid: "web", now: now}).nextTurn()
	a.notFound("web", nil)
	for name, at := range map[string]time.Time{"the next turn": turn, "the next search": a.schedule.slots["web"].at} {
		if wait := at.Sub(now); !strings.Contains(at.String(), " m=") || wait <= 0 || wait > time.Minute {
			t.Errorf("%s is at %v, %v from now", name, at, wait)
		}
	}
}
