package plugin_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// slow is a source that takes some time for the pod, and never has the namespace.
type slow struct {
	*pods
	podTakes time.Duration
}

func (s slow) Pod(ctx context.Context, ref source.Ref) (*decide.Pod, error) {
	timer := time.NewTimer(s.podTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.pods.Pod(ctx, ref)
	case <-ctx.Done():
		return nil, source.WithKind(source.Unavailable, context.Cause(ctx))
	}
}

func (s slow) Namespace(ctx context.Context, _ string) (*decide.Namespace, error) {
	<-ctx.Done()
	return nil, source.WithKind(source.Unavailable, context.Cause(ctx))
}

// All questions about a pod together take no longer than the budget of the API server, and a second
// for the node agent.
func TestBudgetOfAllRequests(t *testing.T) {
	for _, tc := range []struct {
		name     string
		podTakes time.Duration
	}{
		{"no answer about the namespace", 0},
		{"a late answer about the pod, and none about the namespace", 4 * time.Second},
		{"no answer about the pod", time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "sidecar")
				w.Source = func(*config.Config) source.Source { return slow{w.source, tc.podTakes} }
				c := newCall(t, ns)
				c.stdin = c.with(`"api_budget":"5s"`,
					`"enablement_selectors":[{"namespaceSelector":{}}]`)
				for _, verb := range []string{"ADD", "CHECK"} {
					start := time.Now()
					e := w.call(verb, c)
					if e == nil || e.Code != 11 ||
						!strings.Contains(e.Details, "timeout after 6s") {
						t.Errorf("%s: %+v", verb, e)
					}
					if took := time.Since(start); took != 6*time.Second {
						t.Errorf("%s takes %v, want 6s", verb, took)
					}
				}
			})
		})
	}
}
