package source_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestNetwork asks over TCP, in real time: what a network in memory cannot show. What never answers
// is given little time, in which on a busy machine any step may be the one that takes too long: of
// such an error only the kind is certain. What answers has much.
func TestNetwork(t *testing.T) {
	silence := apiservertest.NeverAccepting(t)
	deaf := func(cluster, _ fields) { cluster["server"] = silence }
	nobody := func(cluster, _ fields) { cluster["server"] = "https://127.0.0.1:1" }
	same := func(_, _ fields) {}
	// What fails is tried again until the long one ends.
	const short, long = 300 * time.Millisecond, 3 * time.Second
	for _, row := range []struct {
		name        string
		edit        func(cluster, user fields)
		always      apiservertest.Behaviour
		budget, try time.Duration
		kind        source.Kind
		text        string
	}{
		{
			"an API server that is well", same, apiservertest.Normal(), 30 * time.Second,
			30 * time.Second, "", "",
		},
		{
			"one that never accepts", deaf, apiservertest.Normal(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"one that is not there", nobody, apiservertest.Normal(), long, long, source.Unavailable,
			"connect: connection refused",
		},
		{
			"one that never says hello", same, apiservertest.NoHandshake(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"one that never answers", same, apiservertest.NoReply(), short, short / 3,
			source.Unavailable, "",
		},
		{
			"one that resets the connection", same, apiservertest.Reset(), long, long,
			source.Unavailable, "connection reset by peer",
		},
		{
			"one that resets within the answer", same, apiservertest.ResetAnswer(), long, long,
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
			got := ask(t.Context(), api, web)
			got.check(t, row.kind, row.text)
			// Less than without a budget of its own; what it takes exactly is for virtual time to
			// say.
			if got.took > 9*time.Second {
				t.Errorf("took %v of a budget of %v", got.took, row.budget)
			}
		})
	}
}
