package podcache_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestPodsOfTheNodeAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		got, fetched := env.pod(web)
		want := &decide.Pod{
			Metadata: decide.Metadata{
				Namespace: "default", Name: "web", UID: web.UID,
				Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			},
			Spec: decide.PodSpec{Containers: []decide.Container{{
				Name: "istio-proxy", Args: []string{"proxy", "sidecar"},
			}}},
		}
		if d := cmp.Diff(want, got); d != "" || fetched {
			t.Errorf("fetched %v, want false; pod (-want +got)\n%s", fetched, d)
		}
		if requests, failures := env.fetchedPaths(), env.takeFailures(); len(requests) > 0 || !env.Synced() ||
			len(failures) > 0 {
			t.Errorf("requests %v, synced %v, failures %v, want only that the cache is synced",
				requests, env.Synced(), failures)
		}
		if err := env.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if got := names(env.Pods()); got != "default/web=556740d7 " {
			t.Errorf("pods %s, want only the pod of the node", got)
		}
	})
}

func TestChangesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		for _, row := range []struct {
			name   string
			change func()
			pods   string
			status string // annotation of web
		}{
			{"a new pod", func() {
				env.server.Put(`{metadata: {name: new, uid: c}, spec: {nodeName: here}}`)
			}, "default/new=c default/web=556740d7 ", "{}"},
			{"a changed pod", func() {
				env.server.Put(strings.Replace(webPod, `"{}"`, `"{x}"`, 1))
			}, "default/new=c default/web=556740d7 ", "{x}"},
			{"a deleted pod", func() {
				env.server.DeletePod("default", "new")
			}, "default/web=556740d7 ", "{x}"},
			{"a pod of another node", func() {
				env.server.Put(`{metadata: {name: new, uid: d}, spec: {nodeName: there}}`)
			}, "default/web=556740d7 ", "{x}"},
			{"changes while the watch is broken", func() {
				env.server.ForgetHistory()
				env.server.Put(webPod)
				time.Sleep(time.Minute)
			}, "default/web=556740d7 ", "{}"},
		} {
			row.change()
			synctest.Wait()
			got, fetched := env.pod(web)
			if names(env.Pods()) != row.pods || fetched ||
				got.Metadata.Annotations["sidecar.istio.io/status"] != row.status {
				t.Errorf("%s: pods %s, web %v, fetched %v; want cached pods %s, annotation %s", row.name,
					names(env.Pods()), got, fetched, row.pods, row.status)
			}
		}
	})
}

// TestAServerThatDoesNotStreamLists covers servers before Kubernetes 1.34.
func TestAServerThatDoesNotStreamLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(s *apiservertest.Server) {
			s.Next(apiservertest.Reply(422, "application/json",
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
		})
		if got := names(env.Pods()); got != "default/web=556740d7 " {
			t.Errorf("pods %s, want only the pod of the node", got)
		}
		env.server.DeletePod("default", "web")
		synctest.Wait()
		if got := names(env.Pods()); got != "" {
			t.Errorf("pods %s, want none after the deletion", got)
		}
	})
}

// TestAResponseThatIsNotAListIsReported covers proxies that answer for the API server: the cache
// keeps its pods, and reports the error.
func TestAResponseThatIsNotAListIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Always(apiservertest.Reply(200, "application/json", `{"kind":"Status"}`))
		env.server.CloseConnections()
		env.server.ForgetHistory()
		time.Sleep(time.Minute)
		if got := names(env.Pods()); got != "default/web=556740d7 " {
			t.Errorf("pods %s, want the pod of the last list", got)
		}
		const want = `watch pods: the response is not a list of pods: its kind is "Status" of ""`
		if failures := env.takeFailures(); !slices.ContainsFunc(failures, func(err error) bool {
			return err.Error() == want
		}) {
			t.Errorf("failures %v, want %q", failures, want)
		}
	})
}

func TestWhichPodsAreFetched(t *testing.T) {
	const large = 40 << 10
	for _, row := range []struct {
		name    string
		put     string
		ref     source.Ref
		fetched bool
		kind    source.Kind
	}{
		{"a cached pod is not fetched", "", web, false, ""},
		{"a cached pod that is requested without a UID is not fetched", "", source.Ref{Namespace: "default", Name: "web"}, false, ""},
		{
			"a static pod that is requested with the hash of its configuration is not fetched",
			`{metadata: {name: static, uid: b, annotations: {kubernetes.io/config.mirror: "8d6b"}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "static", UID: "8d6b"},
			false, "",
		},
		{
			"a pod that the watch has not delivered is fetched", "",
			source.Ref{Namespace: "default", Name: "other", UID: "b"},
			true, "",
		},
		{
			"a pod that the watch has with another UID is fetched", "",
			source.Ref{Namespace: "default", Name: "web", UID: "c"},
			true, source.Replaced,
		},
		{
			"a pod that does not exist is requested", "",
			source.Ref{Namespace: "default", Name: "gone", UID: "c"},
			true, source.NotFound,
		},
		{
			"a pod that is too large for the cache is fetched",
			`{metadata: {name: big, uid: b, annotations: {big: ` + strings.Repeat("x", large) +
				`}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			true, "",
		},
		{
			"a pod with a large annotation of kubectl is not fetched",
			`{metadata: {name: big, uid: b, annotations: {kubectl.kubernetes.io/last-applied-configuration: ` +
				strings.Repeat("x", large) + `}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			false, "",
		},
		{
			"a pod with a large field that is not used is not fetched",
			`{metadata: {name: big, uid: b}, spec: {nodeName: here, volumes: [{name: ` +
				strings.Repeat("x", large) + `}]}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			false, "",
		},
		{
			"a pod that has ended is fetched",
			`{metadata: {name: ended, uid: b}, spec: {nodeName: here}, status: {phase: Failed}}`,
			source.Ref{Namespace: "default", Name: "ended", UID: "b"},
			true, "",
		},
		{
			"a pod with an invalid specification is fetched",
			`{metadata: {name: odd, uid: b}, spec: {nodeName: here, containers: 7}}`,
			source.Ref{Namespace: "default", Name: "odd", UID: "b"},
			true, source.Unavailable,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t, func(s *apiservertest.Server) {
					if row.put != "" {
						s.Put(row.put)
					}
				})
				_, fetched, err := env.Pod(t.Context(), row.ref)
				if fetched != row.fetched || source.KindOf(err) != row.kind {
					t.Errorf("fetched %v, error %v; want fetched %v, kind %q", fetched, err, row.fetched,
						row.kind)
				}
				if n := len(env.fetchedPaths()); (n > 0) != row.fetched {
					t.Errorf("requests for single objects %v; want requests if and only if the pod is "+
						"fetched, which is %v here", env.fetchedPaths(), row.fetched)
				}
			})
		})
	}
}

// TestCachedAndFetchedPodsAreEqual checks that a cached pod equals the fetched one.
func TestCachedAndFetchedPodsAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		cached, _ := env.pod(web)
		env.server.DeletePod("default", "web")
		env.server.Put(strings.Replace(webPod, "here", "there", 1))
		synctest.Wait()
		got, fetched := env.pod(web)
		if d := cmp.Diff(cached, got); d != "" || !fetched {
			t.Errorf("fetched %v, want true; pod (-cached +fetched)\n%s", fetched, d)
		}
	})
}

func TestNamespacesAreWatchedFromTheFirstRequestOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		namespace := func(name string) (string, bool) {
			t.Helper()
			text, fetched, err := env.Namespace(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return string(text), fetched
		}
		for _, r := range env.server.Requests() {
			if r.Path == "/api/v1/namespaces" {
				t.Error("namespaces are watched before the first request")
			}
		}
		if text, fetched := namespace("default"); !strings.Contains(text,
			`"istio-injection":"enabled"`) || !fetched {
			t.Errorf("namespace %s, fetched %v, want the fetched one", text, fetched)
		}
		synctest.Wait()
		if text, fetched := namespace("default"); !strings.Contains(text,
			`"istio-injection":"enabled"`) || fetched {
			t.Errorf("namespace %s, fetched %v, want the cached one", text, fetched)
		}
		env.server.Put(
			`{kind: Namespace, metadata: {name: default, labels: {istio-injection: disabled}}}`)
		synctest.Wait()
		if text, fetched := namespace("default"); !strings.Contains(text,
			`"istio-injection":"disabled"`) || fetched {
			t.Errorf("namespace %s, fetched %v, want the changed one from the cache", text, fetched)
		}
		if _, fetched, err := env.Namespace(t.Context(), "gone"); !source.IsNotFound(err) ||
			!fetched {
			t.Errorf("a missing namespace: fetched %v, error %v, want true and not found", fetched, err)
		}
	})
}
