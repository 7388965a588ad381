package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/source/sourcetest"
)

// Without the API server what is kept goes on to be answered, and what is not is said to be unavailable.
func TestAnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Always(sourcetest.InternalError())
		w.server.ForgetHistory()
		time.Sleep(time.Minute)
		if _, fetched := w.pod(web); fetched {
			t.Error("fetched")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := w.Pod(ctx, source.Ref{Namespace: "default", Name: "new", UID: "c"}); !source.IsUnavailable(err) {
			t.Errorf("%v", err)
		}
		if err := w.Ready(t.Context()); !source.IsUnavailable(err) {
			t.Errorf("%v", err)
		}
		if broken := w.broken(); len(broken) == 0 || !strings.Contains(broken[0].Error(), "watch pods: ") {
			t.Errorf("broken %v", broken)
		}
		w.server.Always(sourcetest.Well())
		time.Sleep(2 * time.Minute)
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *sourcetest.Server) { s.Next(sourcetest.Forbidden(), sourcetest.Forbidden()) })
		if w.Synced() || len(w.Pods()) > 0 {
			t.Error("synced")
		}
		if _, fetched := w.pod(web); !fetched {
			t.Error("not fetched")
		}
		if err := w.Ready(t.Context()); err != nil {
			t.Errorf("what can be fetched is not ready: %v", err)
		}
	})
}

// Errors are for logs: whatever fails, the token is not in them.
func TestErrorsHaveNoToken(t *testing.T) {
	for name, behaviour := range map[string]sourcetest.Behaviour{
		"refused": sourcetest.Unauthorized(), "reset": sourcetest.Reset(), "no JSON": sourcetest.Reply(200, "application/json", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(s *sourcetest.Server) { s.Always(behaviour) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := w.Pod(ctx, source.Ref{Namespace: "default", Name: "new"})
				if err := errors.Join(append(w.broken(), err)...); err == nil || strings.Contains(err.Error(), w.server.Token()) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for text, o := range map[string]mirror.Options{
		"it has no name":           {Config: &rest.Config{}},
		"client of the API server": {Config: &rest.Config{Host: "::"}, NodeName: "here"},
	} {
		if _, err := mirror.New(o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v", err)
		}
	}
}
