package source_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestRequestsOverTCPEndWithTheirBudget makes requests over TCP in real time, to check what a
// network in memory cannot show. The budget is short if the server never answers. On a busy machine
// any step may then use up the budget, so only the kind of the error is checked. The budget is long
// if the server answers.
func TestRequestsOverTCPEndWithTheirBudget(t *testing.T) {
	neverAccepting := apiservertest.NeverAccepting(t)
	blocked := func(cluster, _ fields) { cluster["server"] = neverAccepting }
	unreachable := func(cluster, _ fields) { cluster["server"] = "https://127.0.0.1:1" }
	unchanged := func(_, _ fields) {}
	// Errors are retried until the long budget ends.
	const short, long = 300 * time.Millisecond, 3 * time.Second
	for _, row := range []struct {
		name        string
		edit        func(cluster, user fields)
		always      apiservertest.Behavior
		budget, try time.Duration
		kind        source.Kind
		text        string
	}{
		{
			"a normal API server", unchanged, apiservertest.Normal(), 30 * time.Second,
			30 * time.Second, "", "",
		},
		{
			"a server that never accepts", blocked, apiservertest.Normal(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"no server", unreachable, apiservertest.Normal(), long, long, source.Unavailable,
			"connect: connection refused",
		},
		{
			"a server without a TLS handshake", unchanged, apiservertest.NoHandshake(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"a server that never answers", unchanged, apiservertest.NoReply(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"a server that resets the connection", unchanged, apiservertest.Reset(), long, long,
			source.Unavailable, "connection reset by peer",
		},
		{
			"a server that resets within the answer", unchanged, apiservertest.ResetReply(), long, long,
			source.Unavailable, "its answer is incomplete",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := apiservertest.Start(t)
			server.Put(webPod)
			server.Always(row.always)
			api := newSource(t, source.Options{
				Kubeconfig: server.KubeconfigWith(row.edit), Timeout: row.budget, RequestTimeout: row.try,
			})
			got := requestPod(t.Context(), api, web)
			got.check(t, row.kind, row.text)
			// The time must be less than without a budget. Tests in virtual time check the exact
			// time.
			if got.elapsed > 9*time.Second {
				t.Errorf("the request took %v with a budget of %v, want at most 9s", got.elapsed, row.budget)
			}
		})
	}
}
