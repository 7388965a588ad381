package source_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestEachAttemptHasItsOwnConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		server.Next(apiservertest.InternalError(), apiservertest.InternalError())
		requestPod(t.Context(), api, web).check(t, "", "")
		if n := server.Connections(); n != 3 {
			t.Errorf("%d connections, want 3: only a new connection may reach another API server", n)
		}
	})
}

func TestBackoffGrowsAndIsRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		server.Always(apiservertest.InternalError())
		requestPod(t.Context(), api, web).check(t, source.Unavailable, "500")
		requests := server.Requests()
		step, atBound := 100*time.Millisecond, 0
		for i := range requests[1:] {
			delay := requests[i+1].Time.Sub(requests[i].Time)
			if delay < step/2 || delay > step {
				t.Errorf("delay %d is %v, want between %v and %v", i, delay, step/2, step)
			}
			if delay == step/2 || delay == step {
				atBound++
			}
			step = min(2*step, time.Second)
		}
		if len(requests) < 10 || atBound > 1 {
			t.Errorf("%d requests, want at least 10; %d delays equal a bound, want at most 1", len(requests),
				atBound)
		}
	})
}

func TestConfiguredTimeoutsLimitTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startInMemory(t)
		server.Always(apiservertest.NoReply())
		api := newSource(t, source.Options{
			Kubeconfig: server.Kubeconfig(), Dial: server.Dial, Timeout: 3 * time.Second,
			RequestTimeout: time.Second,
		})
		got := requestPod(t.Context(), api, web)
		got.check(t, source.Unavailable, "(3 attempts in 3s)")
		if got.elapsed != 3*time.Second {
			t.Errorf("the request took %v, want 3s", got.elapsed)
		}
	})
}

func TestEndOfTheContextEndsTheRequest(t *testing.T) {
	for _, row := range []struct {
		name     string
		behavior apiservertest.Behavior
		kind     source.Kind
	}{
		{"the request is not answered", apiservertest.NoReply(), source.Unavailable},
		{"the handshake is not answered", apiservertest.NoHandshake(), source.Unavailable},
		{"the answer does not end", apiservertest.Trickle(100 * time.Millisecond), source.Unavailable},
		{"the server requests a later retry", apiservertest.TooManyRequests("5"), source.Unavailable},
		{"another pod has the name", apiservertest.OtherUID("new"), source.Replaced},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, api := startInMemory(t)
				server.Always(row.behavior)
				ctx, cancel := context.WithCancelCause(t.Context())
				cause := errors.New("the runtime has no more time")
				time.AfterFunc(time.Second, func() { cancel(cause) })
				got := requestPod(ctx, api, web)
				got.check(t, row.kind, "the runtime has no more time")
				if got.elapsed != time.Second || !errors.Is(got.err, cause) {
					t.Errorf("the request took %v, error %v, want 1s and the cause of the context",
						got.elapsed, got.err)
				}
			})
		})
	}
}

func TestConcurrentRequestsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		server.Next(apiservertest.Reset(), apiservertest.Unauthorized(),
			apiservertest.InternalError())
		var requests sync.WaitGroup
		var mu sync.Mutex
		kinds := map[source.Kind]int{}
		for range 50 {
			requests.Go(func() {
				got := requestPod(t.Context(), api, web)
				mu.Lock()
				defer mu.Unlock()
				kinds[source.KindOf(got.err)]++
			})
		}
		requests.Wait()
		if d := cmp.Diff(map[source.Kind]int{"": 49, source.Unauthorized: 1}, kinds); d != "" {
			t.Errorf("results by kind (-want +got)\n%s", d)
		}
	})
}
