package podcache_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

const newPod = `{metadata: {name: new, uid: c}, spec: {nodeName: here}}`

// TestAPodIsCachedSoonAfterAnOutage checks that a pod that was created during an outage of any
// length is cached soon after the outage.
func TestAPodIsCachedSoonAfterAnOutage(t *testing.T) {
	for name, behavior := range map[string]apiservertest.Behavior{
		"errors": apiservertest.InternalError(), "connections are reset": apiservertest.Reset(),
		"too many requests": apiservertest.TooManyRequests("1"),
	} {
		for _, outage := range []time.Duration{time.Second, time.Minute, 10 * time.Minute} {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					env := start(t)
					env.server.Always(behavior)
					env.server.ForgetHistory()
					time.Sleep(outage)
					env.server.Put(newPod)
					env.server.Always(apiservertest.Normal())
					env.waitForNewPod()
				})
			})
		}
	}
}

// TestAPodIsCachedSoonAfterConnectionsWereRefused covers a server that refuses connections while it
// restarts.
func TestAPodIsCachedSoonAfterConnectionsWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		server.Put(webPod)
		options := optionsFor(server)
		var down atomic.Bool
		options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return server.Dial(ctx, network, address)
		}
		cache, err := podcache.New(podcache.Options{
			Client: client(t, options), NodeName: "here", Fetch: source.Fallback(),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, cache)
		defer stop()
		synctest.Wait()
		down.Store(true)
		server.Always(apiservertest.Reset()) // for the open connections
		server.ForgetHistory()
		time.Sleep(10 * time.Minute)
		server.Put(newPod)
		server.Always(apiservertest.Normal())
		down.Store(false)
		(&testEnv{Cache: cache, t: t}).waitForNewPod()
	})
}

// waitForNewPod waits for the longest delay, and fails the test unless the new pod is cached then.
func (env *testEnv) waitForNewPod() {
	env.t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if _, ok := env.Item("default", "new"); !ok {
		env.t.Error("the new pod is not cached after 5 s")
	}
}

// TestAttemptsAreSpread covers an outage that all agents of a cluster notice at the same time.
// Their requests to another API server must be spread from the first attempt on.
func TestAttemptsAreSpread(t *testing.T) {
	for fault, behavior := range map[string]apiservertest.Behavior{
		"500": apiservertest.InternalError(), "429": apiservertest.TooManyRequests("1"),
		"connections are closed": apiservertest.HangUp(),
	} {
		t.Run(fault, func(t *testing.T) { checkAttemptsAreSpread(t, behavior) })
	}
}

func checkAttemptsAreSpread(t *testing.T, fault apiservertest.Behavior) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Always(fault)
		env.server.ForgetHistory()
		time.Sleep(time.Hour / 2)
		var delays []time.Duration
		requests := env.server.Requests()
		for i, r := range requests[1:] {
			// One attempt has several requests: for a stream, and for a list.
			if delay := r.Time.Sub(requests[i].Time); delay > 0 {
				delays = append(delays, delay)
			}
		}
		if len(delays) < 500 || slices.Min(delays) < 500*time.Millisecond ||
			slices.Max(delays) > 5*time.Second {
			t.Fatalf("%d delays from %v to %v, want at least 500 from 500ms to 5s", len(delays),
				slices.Min(delays), slices.Max(delays))
		}
		var spread [10]int
		for _, d := range delays {
			spread[d/(500*time.Millisecond)%10]++
		}
		for i, n := range spread[1:] {
			if n < len(delays)/18 || n > len(delays)/4 {
				t.Errorf("%d of %d delays begin with %v, want an eighteenth to a quarter", n, len(delays),
					time.Duration(i+1)*500*time.Millisecond)
			}
		}
	})
}

// TestNamespacesAreRequestedRarely checks that failed requests for the namespaces of the cluster
// are retried rarely: every node sends these requests.
func TestNamespacesAreRequestedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		if _, _, err := env.Namespace(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		env.server.Always(apiservertest.InternalError())
		env.server.ForgetHistory()
		time.Sleep(time.Hour)
		requests := 0
		for _, r := range env.server.Requests() {
			if r.Path == "/api/v1/namespaces" {
				requests++
			}
		}
		if requests > 1000 { // with the delays for pods, there would be more than 2000
			t.Errorf("%d requests in an hour, want at most 1000", requests)
		}
	})
}

// TestLastingProblemIsReportedRarely checks that a problem is reported immediately, and rarely
// while it lasts.
func TestLastingProblemIsReportedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		for _, outage := range []int{1, 2} {
			env.server.Always(apiservertest.InternalError())
			env.server.ForgetHistory()
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if n := len(env.takeFailures()); n != 1 {
				t.Errorf("outage %d: reported %d times at its start, want once", outage, n)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			// A lasting problem is reported every 30 s.
			if n := len(env.takeFailures()); n < 15 || n > 21 {
				t.Errorf("outage %d: reported %d times in ten minutes, want 15 to 21 times", outage, n)
			}
			env.server.Always(apiservertest.Normal())
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if n := len(env.takeFailures()); n > 0 {
				t.Errorf("outage %d: reported %d times after its end, want no report", outage, n)
			}
		}
	})
}
