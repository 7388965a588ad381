package cluster_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// connect returns a client of a server in memory.
func connect(t *testing.T, server *apiservertest.Server) *cluster.Client {
	t.Helper()
	api, err := apiclient.New(apiclient.Options{
		Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
		Dial: server.Dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.New(api)
}

// watch watches the DaemonSet until end is called. failed receives the errors.
func watch(t *testing.T, c *cluster.Client) (failed chan error, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	failed = make(chan error, 1000)
	var watches sync.WaitGroup
	watches.Go(func() {
		c.WatchDaemonSet(ctx, name, func(*cluster.DaemonSet) {}, func(err error) { failed <- err })
	})
	return failed, func() {
		cancel()
		watches.Wait()
	}
}

// TestWatchThatDoesNotEndIsAbandoned checks that a watch whose answer never begins, or arrives byte
// by byte, is abandoned some time after the API server should have ended it, and that a new watch
// follows.
func TestWatchThatDoesNotEndIsAbandoned(t *testing.T) {
	for fault, behavior := range map[string]apiservertest.Behavior{
		"no answer":    apiservertest.NoReply(),
		"byte by byte": apiservertest.Trickle(time.Second),
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.StartInMemory(t)
				list := apiservertest.Reply(http.StatusOK, "application/json",
					`{"kind":"DaemonSetList","metadata":{"resourceVersion":"1"},"items":[]}`)
				server.Next(list, behavior)
				server.Always(list)
				c := connect(t, server)
				defer c.Close()
				failed, end := watch(t, c)
				time.Sleep(5 * time.Minute)
				if n := len(server.Requests()); n != 2 || len(failed) != 0 {
					t.Errorf("after five minutes: %d requests and %d failures, want 2 and 0", n,
						len(failed))
				}
				time.Sleep(6 * time.Minute)
				if n := len(server.Requests()); n < 3 || len(failed) == 0 {
					t.Errorf("after eleven minutes: %d requests and %d failures, want a new request "+
						"after a failure", n, len(failed))
				}
				end()
			})
		})
	}
}

// TestDelaysGrowIfOnlyTheWatchIsRefused checks that a successful list request before each refused
// watch does not reset the delays, and that the reason is reported.
func TestDelaysGrowIfOnlyTheWatchIsRefused(t *testing.T) {
	const event = `{"type":"ERROR","object":{"kind":"Status","message":"watches are disabled"}}`
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		for range 1000 {
			server.Next(apiservertest.Reply(http.StatusOK, "application/json",
				`{"kind":"DaemonSetList","metadata":{"resourceVersion":"1"},"items":[]}`),
				apiservertest.Reply(http.StatusOK, "application/json", event))
		}
		c := connect(t, server)
		defer c.Close()
		failed, end := watch(t, c)
		time.Sleep(10 * time.Minute)
		if n := len(failed); n > 80 { // at most every 8 s
			t.Errorf("%d watches within ten minutes, want at most 80", n)
		}
		if err := <-failed; !strings.Contains(err.Error(), "ERROR of the watch: watches are disabled") {
			t.Errorf("the watch reports %v, want the message of the API server", err)
		}
		end()
	})
}

// TestWatchesOfAgentsAreSpread checks that the requests of agents that started together are spread
// over seconds when their watches end, and after an outage of the API server.
func TestWatchesOfAgentsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		const many = 20
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range many {
			c := connect(t, server)
			group.Go(func() {
				defer c.Close()
				c.WatchDaemonSet(ctx, name, func(*cluster.DaemonSet) {}, nil)
			})
		}
		synctest.Wait()
		// distinctTenths returns the number of tenths of a second in which requests arrived.
		distinctTenths := func(during time.Duration) int {
			before := len(server.Requests())
			time.Sleep(during)
			times := map[time.Time]bool{}
			for _, r := range server.Requests()[before:] {
				times[r.Time.Truncate(100*time.Millisecond)] = true
			}
			return len(times)
		}
		if n := distinctTenths(11 * time.Minute); n < many/2 {
			t.Errorf("after ended watches: requests in %d tenths of a second, want at least %d", n,
				many/2)
		}
		server.Fault(apiservertest.Reset())
		time.Sleep(time.Minute)
		server.Recover()
		if n := distinctTenths(time.Minute); n < many/2 {
			t.Errorf("after an outage: requests in %d tenths of a second, want at least %d", n,
				many/2)
		}
		cancel()
		group.Wait()
	})
}
