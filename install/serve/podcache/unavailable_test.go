package podcache_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Without the API server what is kept goes on to be answered, and what is not is said to be
// unavailable.
func TestUnavailableAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Always(apiservertest.InternalError())
		w.server.ForgetHistory()
		time.Sleep(time.Minute)
		if _, fetched := w.pod(web); fetched {
			t.Error("fetched")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := w.Pod(ctx, source.Ref{
			Namespace: "default", Name: "new", UID: "c",
		}); !source.IsUnavailable(err) {
			t.Errorf("%v", err)
		}
		if err := w.Ready(t.Context()); !source.IsUnavailable(err) {
			t.Errorf("%v", err)
		}
		if broken := w.broken(); len(broken) == 0 ||
			!strings.Contains(broken[0].Error(), "watch pods: ") {
			t.Errorf("broken %v", broken)
		}
		w.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A list that comes byte by byte is given up, and asked for again.
func TestEndlessList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *apiservertest.Server) { s.Always(apiservertest.Trickle(time.Second)) })
		time.Sleep(3 * time.Minute)
		if w.Synced() || !w.Requested() {
			t.Errorf("synced %v, asked %v", w.Synced(), w.Requested())
		}
		if n := len(w.server.Requests()); n < 2 || n > 6 {
			t.Errorf("%d requests in three minutes", n)
		}
		w.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		if !w.Synced() {
			t.Error("not synced")
		}
	})
}

func TestBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *apiservertest.Server) {
			s.Next(apiservertest.Forbidden(), apiservertest.Forbidden())
		})
		if w.Synced() || len(w.Pods()) > 0 {
			t.Error("synced")
		}
		if err := w.Refused(); err == nil || !w.Requested() {
			t.Errorf("%v, asked %v", err, w.Requested())
		}
		if _, fetched := w.pod(web); !fetched {
			t.Error("not fetched")
		}
		if err := w.Ready(t.Context()); err != nil {
			t.Errorf("what can be fetched is not ready: %v", err)
		}
	})
}

// An API server that does not let us follow pods has answered. One that is away has not, whatever
// it said before.
func TestRejected(t *testing.T) {
	for _, row := range []struct {
		name    string
		answer  apiservertest.Behaviour
		refused string
	}{
		{"forbidden", apiservertest.Forbidden(), "watch pods: pods \"web\" is forbidden"},
		{"the token is not accepted", apiservertest.Unauthorized(), "watch pods: Unauthorized"},
		{"broken", apiservertest.InternalError(), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				check := func(when string, after time.Duration, want string) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					if err := w.Refused(); (err != nil) != (want != "") ||
						err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v; want %q", when, err, want)
					}
				}
				check("at first", 6*time.Second, "")
				w.server.Always(row.answer)
				w.server.ForgetHistory()
				check("then", 6*time.Second, row.refused)
				w.server.Always(apiservertest.Reset())
				check("away", time.Minute, "") // the client tries for ten seconds before it says so
				w.server.Always(row.answer)
				check("back, and the same", time.Minute, row.refused)
				w.server.Always(apiservertest.Normal())
				check("well", 6*time.Second, "")
			})
		})
	}
}

// Each try lists the pods anew, which is no sign that they may be watched now.
func TestPodsThatMayBeListedButNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		server.Put(webPod)
		server.ForbidPods("watch")
		options := optionsFor(server)
		var m *podcache.Cache
		tries := 0
		options.Outcome = func(_ string, code int, _ error) {
			if code != http.StatusForbidden {
				return
			}
			if asked := tries > 0; m.Requested() != asked || (m.Refused() != nil) != asked {
				t.Errorf("at try %d: asked %v, refused %v", tries+1, m.Requested(), m.Refused())
			}
			tries++
		}
		var err error
		if m, err = podcache.New(podcache.Options{
			Client: client(t, options), NodeName: "here", Fetch: source.Fallback(),
		}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, m)
		time.Sleep(time.Minute)
		stop()
		if tries < 10 || !m.Synced() {
			t.Errorf("%d tries, synced %v", tries, m.Synced())
		}
	})
}

// Errors are for logs: whatever fails, the token is not in them.
func TestErrorsHaveNoToken(t *testing.T) {
	for name, behaviour := range map[string]apiservertest.Behaviour{
		"refused": apiservertest.Unauthorized(), "reset": apiservertest.Reset(),
		"no JSON": apiservertest.Reply(200, "application/json", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(s *apiservertest.Server) { s.Always(behaviour) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := w.Pod(ctx, source.Ref{Namespace: "default", Name: "new"})
				if err := errors.Join(append(w.broken(), err)...); err == nil ||
					strings.Contains(err.Error(), w.server.Token()) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestNodeNameIsNeeded(t *testing.T) {
	if _, err := podcache.New(podcache.Options{}); err == nil ||
		!strings.Contains(err.Error(), "the node has no name") {
		t.Errorf("%v", err)
	}
}
