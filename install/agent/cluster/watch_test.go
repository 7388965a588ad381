package cluster_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// A watch whose answer never begins is given up some time after the API server should have ended
// it, and so is one whose answer comes byte by byte. Then there is another one.
func TestAWatchThatDoesNotEnd(t *testing.T) {
	for says, behaviour := range map[string]apiservertest.Behaviour{
		"no answer":    apiservertest.Mute(),
		"byte by byte": apiservertest.Drip(time.Second),
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.StartInMemory(t)
				list := apiservertest.Reply(http.StatusOK, "application/json",
					`{"metadata":{"resourceVersion":"1"},"items":[]}`)
				server.Next(list, behaviour)
				server.Always(list)
				api, err := apiclient.New(apiclient.Options{
					Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
					Dial: server.Dial,
				})
				if err != nil {
					t.Fatal(err)
				}
				c := cluster.New(api)
				defer c.Close()
				ctx, cancel := context.WithCancel(t.Context())
				broken, done := make(chan error, 1000), make(chan struct{})
				go func() {
					defer close(done)
					c.WatchDaemonSet(ctx, name, func(*cluster.DaemonSet) {}, func(err error) {
						broken <- err
					})
				}()
				time.Sleep(5 * time.Minute)
				if n := len(server.Requests()); n != 2 || len(broken) != 0 {
					t.Errorf("after five minutes %d requests, %d failures", n, len(broken))
				}
				time.Sleep(time.Minute)
				if n := len(server.Requests()); n < 3 || len(broken) == 0 {
					t.Errorf("after six minutes %d requests, %d failures", n, len(broken))
				}
				cancel()
				<-done
			})
		})
	}
}
