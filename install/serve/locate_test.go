package serve_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// locate requests the location of the pod default/web from a server with the options.
func locate(t *testing.T, o serve.Options) (*agent.Location, *testEnv, error) {
	t.Helper()
	o.Objects = echo
	env := start(t, socket(t), o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := agent.Caller{Socket: env.path}.Locate(ctx, "default", "web")
	return found, env, err
}

func TestPodsAreLocated(t *testing.T) {
	redirect := rules.DefaultRedirect()
	want := agent.Location{
		Namespace: "default", Name: "web", UID: "7", NetNS: "/run/netns/x", Decision: "redirect",
		Reason: "mesh-pod", Backend: "nft",
		Redirect: &redirect,
	}
	found, env, err := locate(t, serve.Options{Locate: func(
		_ context.Context, namespace, name string,
	) (agent.Location, error) {
		l := want
		l.Namespace, l.Name = namespace, name
		return l, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if found.Redirect.LoopbackCIDR != redirect.LoopbackCIDR ||
		found.Redirect.ProxyPort != redirect.ProxyPort {
		t.Errorf("redirection %+v, want %+v", found.Redirect, redirect)
	}
	found.Redirect = want.Redirect
	if d := cmp.Diff(want, *found, cmp.Comparer(func(a, b *rules.Redirect) bool {
		return a == b
	})); d != "" {
		t.Errorf("location (-want +got)\n%s", d)
	}
	env.wait(t, "answered success true")
}

func TestErrorsOfLocateAreAnswered(t *testing.T) {
	failing := func(err error) func(context.Context, string, string) (agent.Location, error) {
		return func(context.Context, string, string) (agent.Location, error) {
			return agent.Location{}, err
		}
	}
	for _, row := range []struct {
		name     string
		locate   func(context.Context, string, string) (agent.Location, error)
		text     string
		notFound bool
	}{
		{
			"an unknown pod", failing(source.WithKind(source.NotFound, errors.New("no such pod"))),
			"no such pod", true,
		},
		{"an error", failing(errors.New("hm")), "hm", false},
		{"an invalid location", failing(nil), "the pod has no namespace or no name", false},
		{"a timeout", func(ctx context.Context, _, _ string) (agent.Location, error) {
			<-ctx.Done()
			return agent.Location{}, ctx.Err()
		}, "deadline exceeded", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := locate(t, serve.Options{Locate: row.locate})
			if err == nil || !strings.Contains(err.Error(), row.text) ||
				agent.IsNotFound(err) != row.notFound {
				t.Errorf("error %v, not found: %v; want an error with %q, not found: %v", err,
					agent.IsNotFound(err), row.text, row.notFound)
			}
		})
	}
}
