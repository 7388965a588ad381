package podcache_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestCachedPodsAreReturnedDuringAnOutage checks that cached pods are still returned without the
// API server, and that other requests return unavailable.
func TestCachedPodsAreReturnedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Always(apiservertest.InternalError())
		env.server.ForgetHistory()
		synctest.Wait() // the watch has ended, and the next request has not been sent
		if err := env.Ready(t.Context()); !source.IsUnavailable(err) {
			t.Errorf("Ready after the end of the watch: error %v, want the kind unavailable", err)
		}
		time.Sleep(time.Minute)
		if _, fetched := env.pod(web); fetched {
			t.Error("a cached pod was fetched")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := env.Pod(ctx, source.Ref{
			Namespace: "default", Name: "new", UID: "c",
		}); !source.IsUnavailable(err) {
			t.Errorf("Pod: error %v, want the kind unavailable", err)
		}
		if err := env.Ready(t.Context()); !source.IsUnavailable(err) {
			t.Errorf("Ready: error %v, want the kind unavailable", err)
		}
		if failures := env.takeFailures(); len(failures) == 0 ||
			!strings.Contains(failures[0].Error(), "watch pods: ") {
			t.Errorf("failures %v, want the failure of the watch", failures)
		}
		env.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		if err := env.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAWatchWithoutItsListIsReported checks that a watch that the API server accepts, and in which
// it sends no list, is reported after a minute, and that the pods are then listed by another
// request. A pod that is created meanwhile is cached when watches work again.
func TestAWatchWithoutItsListIsReported(t *testing.T) {
	for _, fromStart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			env := start(t, func(s *apiservertest.Server) {
				if fromStart {
					s.Always(apiservertest.SilentWatches())
				}
			})
			if !fromStart {
				env.server.Always(apiservertest.SilentWatches())
				env.server.ForgetHistory() // ends the watch, and makes the next one begin with a list
			}
			time.Sleep(30 * time.Second)
			if failures := env.takeFailures(); env.Synced() == fromStart || len(failures) > 0 && fromStart {
				t.Errorf("after 30 s: synced %t, failures %v; want synced %t, no failure at the start",
					env.Synced(), failures, !fromStart)
			}
			env.server.Put(newPod)
			time.Sleep(time.Minute)
			synctest.Wait()
			if failures := env.takeFailures(); len(failures) != 1 ||
				!strings.Contains(failures[0].Error(), "has not sent the list within 1m0s") {
				t.Errorf("after 90 s: failures %v, want that the list is missing", failures)
			}
			if _, ok := env.Item("default", "new"); !ok || !env.Synced() {
				t.Errorf("after 90 s: synced %t, cached the new pod: %t; want both", env.Synced(), ok)
			}
			env.server.Put(`{metadata: {name: unlisted, uid: e}, spec: {nodeName: here}}`)
			ref := source.Ref{Namespace: "default", Name: "unlisted", UID: "e"}
			for _, fetched := range []bool{true, false} { // the watch counts as interrupted
				if _, isFetched := env.pod(ref); isFetched != fetched {
					t.Errorf("a pod that the silent watch does not report: fetched %t, want %t", isFetched, fetched)
				}
			}
			env.server.Put(`{metadata: {name: later, uid: d}, spec: {nodeName: here}}`)
			env.server.Always(apiservertest.Normal())
			time.Sleep(12 * time.Minute) // client-go ends the silent watch after at most ten minutes
			synctest.Wait()
			if _, ok := env.Item("default", "later"); !ok {
				t.Error("a later pod is not cached")
			}
			if err := env.Ready(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFetchedPodsOutlastAnOutage checks that a pod that was requested while the watch was
// interrupted is still returned when the API server is unavailable.
func TestFetchedPodsOutlastAnOutage(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault apiservertest.Behavior
	}{
		{"the API server fails", apiservertest.InternalError()},
		{"the API server does not answer", apiservertest.NoReply()},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t, func(s *apiservertest.Server) { s.ForbidPods("watch") })
				env.server.Put(`{metadata: {name: new, uid: c}, spec: {nodeName: here}}`)
				ref := source.Ref{Namespace: "default", Name: "new", UID: "c"}
				if _, fetched := env.pod(ref); !fetched {
					t.Error("the pod was not fetched although the pods cannot be watched")
				}
				env.server.Always(row.fault)
				if _, fetched := env.pod(ref); fetched {
					t.Error("the pod was fetched again during the outage")
				}
				ref.UID = "d"
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, _, err := env.Pod(ctx, ref); !source.IsUnavailable(err) {
					t.Errorf("another pod with the name: error %v, want the kind unavailable", err)
				}
			})
		})
	}
}

// TestPodsOfThePluginOutlastAnOutage checks that a pod that only the plugin could read is returned
// when the API server fails again before the watch is established.
func TestPodsOfThePluginOutlastAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Always(apiservertest.InternalError())
		env.server.ForgetHistory()
		time.Sleep(time.Minute)
		const pod = `{"metadata":{"namespace":"default","name":"new","uid":"c"}}`
		if err := env.Keep([]byte(pod)); err != nil {
			t.Fatal(err)
		}
		ref := source.Ref{Namespace: "default", Name: "new", UID: "c"}
		if text, _, err := env.Pod(t.Context(), ref); err != nil || string(text) != pod {
			t.Errorf("Pod returns %s, error %v, want the pod of the plugin", text, err)
		}
		for _, invalid := range []string{"", "{", `{"metadata":{"namespace":"default","name":"new"}}`} {
			if err := env.Keep([]byte(invalid)); err == nil {
				t.Errorf("Keep(%q) returns no error", invalid)
			}
		}
		cached := `{"metadata":{"namespace":"default","name":"web","uid":"` + web.UID + `","labels":{"old":"1"}}}`
		if err := env.Keep([]byte(cached)); err != nil {
			t.Error(err)
		}
		if found, _ := env.pod(web); found.Metadata.Labels["old"] != "" {
			t.Errorf("Pod returns %+v, want the cached pod", found)
		}
		long := fmt.Sprintf(`{"metadata":{"namespace":"default","name":"long","uid":"d","labels":{"x":%q}}}`,
			strings.Repeat("x", 32<<10))
		if err := env.Keep([]byte(long)); err != nil {
			t.Error(err)
		}
		longRef := source.Ref{Namespace: "default", Name: "long", UID: "d"}
		if _, _, err := env.Pod(t.Context(), longRef); !source.IsUnavailable(err) {
			t.Errorf("a pod that is too long for the cache: error %v, want the kind unavailable", err)
		}
		env.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		if _, _, err := env.Pod(t.Context(), ref); !source.IsNotFound(err) {
			t.Errorf("after the next list: error %v, want the kind not-found", err)
		}
	})
}

// TestStartingPodsGetCurrentNamespaces checks that the labels of a namespace are current for a pod
// that starts while the watch is interrupted, and that the cached labels are used while the API
// server is unavailable.
func TestStartingPodsGetCurrentNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		want := func(label string, fetched bool, when string) {
			t.Helper()
			begin := time.Now()
			text, isFetched, err := env.CurrentNamespace(t.Context(), "default")
			if err != nil || !strings.Contains(string(text), `"mode":"`+label+`"`) || isFetched != fetched {
				t.Errorf("%s: %s, fetched %t, error %v; want label %s, fetched %t", when, text, isFetched, err,
					label, fetched)
			}
			if d := time.Since(begin); d > 400*time.Millisecond {
				t.Errorf("%s: returned after %v, want less than the plugin waits", when, d)
			}
		}
		put := func(label string) {
			env.server.Put(`{kind: Namespace, metadata: {name: default, labels: {mode: ` + label + `}}}`)
		}
		put("a")
		want("a", true, "before the first list")
		synctest.Wait()
		want("a", false, "while the namespaces are watched")
		for _, fault := range []apiservertest.Behavior{
			apiservertest.InternalError(), apiservertest.NoReply(), apiservertest.Forbidden(),
		} {
			env.server.Always(fault)
			env.server.ForgetHistory()
			time.Sleep(10 * time.Minute)
			want("a", false, "during an outage")
		}
		env.server.Always(apiservertest.Normal())
		put("b")
		want("b", true, "after the outage, before the watch is established again")
		if text, fetched, err := env.Namespace(t.Context(), "default"); err != nil || fetched ||
			!strings.Contains(string(text), `"mode":"b"`) {
			t.Errorf("Namespace: %s, fetched %t, error %v; want label b from the cache", text, fetched, err)
		}
		time.Sleep(2 * time.Minute)
		want("b", false, "after the watch was established again")
		// The API server still answers, so that no request fails.
		env.server.ForgetHistory()
		synctest.Wait()
		put("c")
		want("c", true, "after the watch has ended with an error, before the next attempt")
		time.Sleep(2 * time.Minute)
		want("c", false, "after the watch was established again")
		env.server.Always(apiservertest.SilentWatches())
		env.server.ForgetHistory()
		time.Sleep(2 * time.Minute)
		put("d")
		want("d", true, "while a new watch has not sent its list")
	})
}

// TestListsReplaceFetchedPods checks that a pod that was requested, and is then deleted while the
// watch is interrupted, is not returned after the next list.
func TestListsReplaceFetchedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Always(apiservertest.InternalError())
		time.Sleep(time.Minute)
		env.server.Put(`{metadata: {name: new, uid: c}, spec: {nodeName: here}}`)
		env.server.Next(apiservertest.Normal())
		ref := source.Ref{Namespace: "default", Name: "new", UID: "c"}
		if _, fetched := env.pod(ref); !fetched {
			t.Error("the pod was not fetched")
		}
		env.server.DeletePod("default", "new")
		env.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		env.server.Always(apiservertest.InternalError())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := env.Pod(ctx, ref); !source.IsUnavailable(err) {
			t.Errorf("error %v, want the kind unavailable", err)
		}
	})
}

// TestEndlessListIsAbandoned checks that a list that arrives byte by byte is abandoned and
// requested again.
func TestEndlessListIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(s *apiservertest.Server) { s.Always(apiservertest.Trickle(time.Second)) })
		time.Sleep(3 * time.Minute)
		if env.Synced() || !env.Requested() {
			t.Errorf("synced %v, requested %v, want false and true", env.Synced(), env.Requested())
		}
		if n := len(env.server.Requests()); n < 2 || n > 6 {
			t.Errorf("%d requests in three minutes, want 2 to 6", n)
		}
		env.server.Always(apiservertest.Normal())
		time.Sleep(2 * time.Minute)
		if !env.Synced() {
			t.Error("the cache is not synced two minutes after the fault")
		}
	})
}

func TestPodsAreFetchedBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(s *apiservertest.Server) {
			s.Next(apiservertest.Forbidden(), apiservertest.Forbidden())
		})
		if env.Synced() || len(env.Pods()) > 0 {
			t.Error("the cache is synced before the first list")
		}
		if err := env.Refused(); err == nil || !env.Requested() {
			t.Errorf("refused %v, requested %v, want an error and true", err, env.Requested())
		}
		if _, fetched := env.pod(web); !fetched {
			t.Error("the pod was not fetched")
		}
		if err := env.Ready(t.Context()); err != nil {
			t.Errorf("Ready: error %v, want none, because pods can be fetched", err)
		}
	})
}

// TestRefusedReturnsTheRejectionOfTheWatch checks that Refused returns the rejection of the watch
// by the API server, and nil while the API server is unavailable, whatever it answered before.
func TestRefusedReturnsTheRejectionOfTheWatch(t *testing.T) {
	for _, row := range []struct {
		name    string
		answer  apiservertest.Behavior
		refused string
	}{
		{"the watch is forbidden", apiservertest.Forbidden(), "watch pods: pods \"web\" is forbidden"},
		{"the token is rejected", apiservertest.Unauthorized(), "watch pods: Unauthorized"},
		{"the API server fails", apiservertest.InternalError(), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t)
				wantRefused := func(description string, after time.Duration, want string) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					if err := env.Refused(); (err != nil) != (want != "") ||
						err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%s: Refused returns the error %v; want the text %q, empty for no error",
							description, err, want)
					}
				}
				wantRefused("before the fault", 6*time.Second, "")
				env.server.Always(row.answer)
				env.server.ForgetHistory()
				wantRefused("during the fault", 6*time.Second, row.refused)
				env.server.Always(apiservertest.Reset())
				wantRefused("unavailable", 6*time.Second, "")
				env.server.Always(row.answer)
				wantRefused("available again, and rejecting", 6*time.Second, row.refused)
				env.server.Always(apiservertest.Normal())
				wantRefused("after the fault", 6*time.Second, "")
			})
		})
	}
}

// TestRefusedReturnsTheRejectionAlthoughListsSucceed checks that Refused returns the rejection of
// the watch, although the list of each attempt succeeds.
func TestRefusedReturnsTheRejectionAlthoughListsSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		server.Put(webPod)
		server.ForbidPods("watch")
		options := optionsFor(server)
		var cache *podcache.Cache
		attempts := 0
		options.Outcome = func(_ string, code int, _ error) {
			if code != http.StatusForbidden {
				return
			}
			requested := attempts > 0
			if cache.Requested() != requested || (cache.Refused() != nil) != requested {
				t.Errorf("before the result of attempt %d: requested %v, refused %v, want %v",
					attempts+1, cache.Requested(), cache.Refused(), requested)
			}
			attempts++
		}
		var err error
		if cache, err = podcache.New(podcache.Options{
			Client: client(t, options), NodeName: "here", Fetch: source.Fallback(),
		}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, cache)
		time.Sleep(time.Minute)
		stop()
		if attempts < 10 || !cache.Synced() {
			t.Errorf("%d attempts, want at least 10; synced %v, want true", attempts, cache.Synced())
		}
	})
}

// TestErrorsHaveNoToken checks that no error contains the token, because errors are logged.
func TestErrorsHaveNoToken(t *testing.T) {
	for name, behavior := range map[string]apiservertest.Behavior{
		"refused": apiservertest.Unauthorized(), "reset": apiservertest.Reset(),
		"no JSON": apiservertest.Reply(200, "application/json", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t, func(s *apiservertest.Server) { s.Always(behavior) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := env.Pod(ctx, source.Ref{Namespace: "default", Name: "new"})
				if err := errors.Join(append(env.takeFailures(), err)...); err == nil ||
					strings.Contains(err.Error(), env.server.Token()) {
					t.Errorf("error %v, want an error without the token", err)
				}
			})
		})
	}
}

func TestNodeNameIsNeeded(t *testing.T) {
	if _, err := podcache.New(podcache.Options{}); err == nil ||
		!strings.Contains(err.Error(), "the node has no name") {
		t.Errorf("New returns the error %v, want an error about the name of the node", err)
	}
}

// TestTooManyPodsAreRefused checks that too many pods are refused however the API server sends
// them: in the list of a watch, in the pages of a list without a watch, which follows, or one by
// one. The last state stays in the cache. When there are fewer pods, they are cached.
func TestTooManyPodsAreRefused(t *testing.T) {
	const limit = 1200
	podcache.SetMaxListed(t, limit)
	put := func(s *apiservertest.Server, i int) {
		s.PutPod(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": "here"},
			"metadata": map[string]any{"namespace": "default", "name": fmt.Sprint("p", i)},
		})
	}
	for _, more := range []int{0, 1} { // pods that are created after the first list
		synctest.Test(t, func(t *testing.T) {
			env := start(t, func(s *apiservertest.Server) { // also puts the pod web
				for i := range limit - more {
					put(s, i)
				}
			})
			if more > 0 {
				if n := len(env.Pods()); n != limit || !env.Synced() {
					t.Fatalf("%d pods, synced %t; want %d, synced", n, env.Synced(), limit)
				}
				put(env.server, limit)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			failures := env.takeFailures()
			if len(failures) == 0 || !strings.Contains(failures[0].Error(), "it has more than 1200 items") {
				t.Errorf("%d more pods: failures %v, want that the list has too many items", more, failures)
			}
			if n := len(env.Pods()); env.Synced() != (more > 0) || n != limit*more {
				t.Errorf("%d more pods: %d pods, synced %t; want %d pods, synced: %t", more, n, env.Synced(), limit*more,
					more > 0)
			}
			env.server.DeletePod("default", "p0")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := len(env.Pods()); n != limit || env.Ready(t.Context()) != nil {
				t.Errorf("%d more pods, after a deletion: %d pods, want %d", more, n, limit)
			}
		})
	}
}
