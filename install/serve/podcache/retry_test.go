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

// However long the API server was away, a pod that was made meanwhile is known soon after it is
// back.
func TestAPodIsKnownSoonAfterAnOutage(t *testing.T) {
	for name, behaviour := range map[string]apiservertest.Behaviour{
		"errors": apiservertest.InternalError(), "connections are reset": apiservertest.Reset(),
		"too many requests": apiservertest.TooManyRequests("1"),
	} {
		for _, outage := range []time.Duration{time.Second, time.Minute, 10 * time.Minute} {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t)
					w.server.Always(behaviour)
					w.server.ForgetHistory()
					time.Sleep(outage)
					w.server.Put(newPod)
					w.server.Always(apiservertest.Normal())
					w.knowsNew()
				})
			})
		}
	}
}

// A server that restarts refuses connections for a while.
func TestAPodIsKnownSoonAfterConnectionsWereRefused(t *testing.T) {
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
		m, err := podcache.New(podcache.Options{
			Client: client(t, options), NodeName: "here", Fetch: source.Fallback(),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, m)
		defer stop()
		synctest.Wait()
		down.Store(true)
		server.Always(apiservertest.Reset()) // of the connections that are open
		server.ForgetHistory()
		time.Sleep(10 * time.Minute)
		server.Put(newPod)
		server.Always(apiservertest.Normal())
		down.Store(false)
		(&world{Cache: m, t: t}).knowsNew()
	})
}

// knowsNew fails the test unless the new pod is kept within the longest pause.
func (w *world) knowsNew() {
	w.t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if _, ok := w.Item("default", "new"); !ok {
		w.t.Error("the pod is not known")
	}
}

// All agents of a cluster lose an API server at the same time. What they ask of the next one is
// spread from the first try on, since nothing but their pauses keeps them apart.
func TestAttemptsAreSpread(t *testing.T) {
	for fault, behaviour := range map[string]apiservertest.Behaviour{
		"500": apiservertest.InternalError(), "429": apiservertest.TooManyRequests("1"),
		"connections are closed": apiservertest.HangUp(),
	} {
		t.Run(fault, func(t *testing.T) { triesAreSpread(t, behaviour) })
	}
}

func triesAreSpread(t *testing.T, fault apiservertest.Behaviour) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Always(fault)
		w.server.ForgetHistory()
		time.Sleep(time.Hour)
		var pauses []time.Duration
		requests := w.server.Requests()
		for i, r := range requests[1:] {
			// One try has several requests: for a stream, and for a list.
			if pause := r.Time.Sub(requests[i].Time); pause > 0 {
				pauses = append(pauses, pause)
			}
		}
		if len(pauses) < 1000 || slices.Min(pauses) < 500*time.Millisecond ||
			slices.Max(pauses) > 5*time.Second {
			t.Fatalf("%d pauses from %v to %v", len(pauses), slices.Min(pauses), slices.Max(pauses))
		}
		var spread [10]int
		for _, p := range pauses {
			spread[p/(500*time.Millisecond)%10]++
		}
		for i, n := range spread[1:] {
			if n < len(pauses)/18 || n > len(pauses)/4 {
				t.Errorf("%d of %d pauses are about %v", n, len(pauses),
					time.Duration(i+1)*500*time.Millisecond)
			}
		}
	})
}

// Namespaces are those of the cluster: each node asking for them every few seconds would be too
// much.
func TestNamespacesAreAskedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		if _, _, err := w.Namespace(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.server.Always(apiservertest.InternalError())
		w.server.ForgetHistory()
		time.Sleep(time.Hour)
		tries := 0
		for _, r := range w.server.Requests() {
			if r.Path == "/api/v1/namespaces" {
				tries++
			}
		}
		if tries > 1000 {
			t.Errorf("%d requests in an hour", tries)
		}
	})
}

// What is tried often is told seldom, but at once when it begins.
func TestLastingProblemIsReportedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for _, outage := range []int{1, 2} {
			w.server.Always(apiservertest.InternalError())
			w.server.ForgetHistory()
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if n := len(w.broken()); n != 1 {
				t.Errorf("outage %d: told %d times when it began", outage, n)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := len(w.broken()); n < 15 || n > 21 {
				t.Errorf("outage %d: told %d times in ten minutes", outage, n)
			}
			w.server.Always(apiservertest.Normal())
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if n := len(w.broken()); n > 0 {
				t.Errorf("outage %d: told %d times after its end", outage, n)
			}
		}
	})
}
