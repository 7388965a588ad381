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

// slowSource is a source that takes some time to return the pod, and never returns the namespace.
type slowSource struct {
	*podSource
	podTakes time.Duration
}

func (s slowSource) Pod(ctx context.Context, ref source.Ref) (*decide.Pod, error) {
	timer := time.NewTimer(s.podTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.podSource.Pod(ctx, ref)
	case <-ctx.Done():
		return nil, source.WithKind(source.Unavailable, context.Cause(ctx))
	}
}

func (s slowSource) Namespace(ctx context.Context, _ string) (*decide.Namespace, error) {
	<-ctx.Done()
	return nil, source.WithKind(source.Unavailable, context.Cause(ctx))
}

// TestRequestsTakeAtMostTheBudget checks that all requests of a call together take at most
// api_budget, plus one second for the node agent.
func TestRequestsTakeAtMostTheBudget(t *testing.T) {
	for _, tc := range []struct {
		name     string
		podTakes time.Duration
	}{
		{"no answer for the namespace", 0},
		{"a late answer for the pod, none for the namespace", 4 * time.Second},
		{"no answer for the pod", time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			synctest.Test(t, func(t *testing.T) {
				env := newTestEnv(t, "sidecar")
				env.Source = func(*config.Config) source.Source { return slowSource{env.source, tc.podTakes} }
				c := newCall(t, ns)
				c.stdin = c.configuration(`"api_budget":"5s"`,
					`"enablement_selectors":[{"namespaceSelector":{}}]`)
				for _, verb := range []string{"ADD", "CHECK"} {
					start := time.Now()
					e := env.call(verb, c)
					if e == nil || e.Code != 11 ||
						!strings.Contains(e.Details, "timeout after 6s") {
						t.Errorf("%s: %+v, want code 11 and a timeout after 6s", verb, e)
					}
					if elapsed := time.Since(start); elapsed != 6*time.Second {
						t.Errorf("%s takes %v, want 6s", verb, elapsed)
					}
				}
			})
		})
	}
}
