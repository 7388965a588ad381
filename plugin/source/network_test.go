package source_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/source/sourcetest"
)

// TestNetwork asks over TCP, in real time: what a network in memory cannot show. On a busy machine any step may be the one that
// takes too long, so that only the kind of such an error is certain.
func TestNetwork(t *testing.T) {
	deaf := func(cluster, _ fields) { cluster["server"] = sourcetest.Deaf(t) }
	nobody := func(cluster, _ fields) { cluster["server"] = "https://127.0.0.1:1" }
	same := func(_, _ fields) {}
	for _, row := range []struct {
		name   string
		edit   func(cluster, user fields)
		always sourcetest.Behaviour
		kind   source.Kind
		text   string
	}{
		{"an API server that is well", same, sourcetest.Well(), "", ""},
		{"one that never accepts", deaf, sourcetest.Well(), source.Unavailable, ""},
		{"one that is not there", nobody, sourcetest.Well(), source.Unavailable, "connect: connection refused"},
		{"one that never says hello", same, sourcetest.Silent(), source.Unavailable, ""},
		{"one that never answers", same, sourcetest.Mute(), source.Unavailable, ""},
		{"one that resets the connection", same, sourcetest.Reset(), source.Unavailable, "connection reset by peer"},
		{"one that resets within the answer", same, sourcetest.ResetAnswer(), source.Unavailable, "its answer is cut short"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := sourcetest.Start(t)
			server.Put(webPod)
			server.Always(row.always)
			const budget = 300 * time.Millisecond
			api := newSource(t, source.Options{Kubeconfig: server.KubeconfigWith(row.edit), Budget: budget, Try: budget / 3})
			got := ask(t.Context(), api, web)
			got.check(t, row.kind, row.text)
			if got.took > 10*budget {
				t.Errorf("took %v of a budget of %v", got.took, budget)
			}
		})
	}
}
