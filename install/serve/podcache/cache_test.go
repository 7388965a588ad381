package podcache_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestPodsOfTheNodeAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		got, fetched := w.pod(web)
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
			t.Errorf("fetched %v (-want +got)\n%s", fetched, d)
		}
		if asked, broken := w.asked(), w.broken(); len(asked) > 0 || !w.Synced() ||
			len(broken) > 0 {
			t.Errorf("asked for %v, synced %v, broken %v", asked, w.Synced(), broken)
		}
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if got := names(w.Pods()); got != "default/web=556740d7 " {
			t.Errorf("pods %s", got)
		}
	})
}

func TestChangesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for _, row := range []struct {
			name   string
			change func()
			pods   string
			status string // annotation of web
		}{
			{"a new pod", func() {
				w.server.Put(`{metadata: {name: new, uid: c}, spec: {nodeName: here}}`)
			}, "default/new=c default/web=556740d7 ", "{}"},
			{"a changed pod", func() {
				w.server.Put(strings.Replace(webPod, `"{}"`, `"{x}"`, 1))
			}, "default/new=c default/web=556740d7 ", "{x}"},
			{"a pod that is gone", func() {
				w.server.DeletePod("default", "new")
			}, "default/web=556740d7 ", "{x}"},
			{"a pod of another node", func() {
				w.server.Put(`{metadata: {name: new, uid: d}, spec: {nodeName: there}}`)
			}, "default/web=556740d7 ", "{x}"},
			{"changes while the watch is broken", func() {
				w.server.Put(webPod)
				w.server.ForgetHistory()
				time.Sleep(time.Minute)
			}, "default/web=556740d7 ", "{}"},
		} {
			row.change()
			synctest.Wait()
			got, fetched := w.pod(web)
			if names(w.Pods()) != row.pods || fetched ||
				got.Metadata.Annotations["sidecar.istio.io/status"] != row.status {
				t.Errorf("%s: pods %s, web %v, fetched %v", row.name, names(w.Pods()), got, fetched)
			}
		}
	})
}

// Servers before Kubernetes 1.34 do not stream lists.
func TestAServerThatDoesNotStreamLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *apiservertest.Server) {
			s.Next(apiservertest.Reply(422, "application/json",
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
		})
		if got := names(w.Pods()); got != "default/web=556740d7 " {
			t.Errorf("pods %s", got)
		}
		w.server.DeletePod("default", "web")
		synctest.Wait()
		if got := names(w.Pods()); got != "" {
			t.Errorf("pods %s", got)
		}
	})
}

func TestFetchedPods(t *testing.T) {
	const large = 40 << 10
	for _, row := range []struct {
		name    string
		put     string
		ref     source.Ref
		fetched bool
		kind    source.Kind
	}{
		{"nothing that is kept", "", web, false, ""},
		{"not even without a UID", "", source.Ref{Namespace: "default", Name: "web"}, false, ""},
		{
			"no static pod, which is known by the hash of its configuration",
			`{metadata: {name: static, uid: b, annotations: {kubernetes.io/config.hash: "8d6b"}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "static", UID: "8d6b"},
			false, "",
		},
		{
			"a pod that the watch has not brought", "",
			source.Ref{Namespace: "default", Name: "other", UID: "b"},
			true, "",
		},
		{
			"a pod that the watch has with another UID", "",
			source.Ref{Namespace: "default", Name: "web", UID: "c"},
			true, source.Replaced,
		},
		{
			"a pod that does not exist", "",
			source.Ref{Namespace: "default", Name: "gone", UID: "c"},
			true, source.NotFound,
		},
		{
			"a pod with more than is kept",
			`{metadata: {name: big, uid: b, annotations: {big: ` + strings.Repeat("x", large) +
				`}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			true, "",
		},
		{
			"not for what kubectl writes into pods",
			`{metadata: {name: big, uid: b, annotations: {kubectl.kubernetes.io/last-applied-configuration: ` +
				strings.Repeat("x", large) + `}}, spec: {nodeName: here}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			false, "",
		},
		{
			"not for what does not count",
			`{metadata: {name: big, uid: b}, spec: {nodeName: here, volumes: [{name: ` +
				strings.Repeat("x", large) + `}]}}`,
			source.Ref{Namespace: "default", Name: "big", UID: "b"},
			false, "",
		},
		{
			"a pod whose specification is not understood",
			`{metadata: {name: odd, uid: b}, spec: {nodeName: here, containers: 7}}`,
			source.Ref{Namespace: "default", Name: "odd", UID: "b"},
			true, source.Unavailable,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(s *apiservertest.Server) {
					if row.put != "" {
						s.Put(row.put)
					}
				})
				_, fetched, err := w.Pod(t.Context(), row.ref)
				if fetched != row.fetched || source.KindOf(err) != row.kind {
					t.Errorf("fetched %v: %v", fetched, err)
				}
				if n := len(w.asked()); (n > 0) != row.fetched {
					t.Errorf("asked for %v", w.asked())
				}
			})
		})
	}
}

// A pod that is kept was written by its owner in the same words as one that is fetched.
func TestKeptAndFetchedAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		kept, _ := w.pod(web)
		w.server.DeletePod("default", "web")
		w.server.Put(strings.Replace(webPod, "here", "there", 1))
		synctest.Wait()
		got, fetched := w.pod(web)
		if d := cmp.Diff(kept, got); d != "" || !fetched {
			t.Errorf("fetched %v (-kept +fetched)\n%s", fetched, d)
		}
	})
}

func TestNamespacesAreWatchedOnceSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		label := func(name string) (string, bool) {
			t.Helper()
			text, fetched, err := w.Namespace(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return string(text), fetched
		}
		for _, r := range w.server.Requests() {
			if r.Path == "/api/v1/namespaces" {
				t.Error("namespaces are watched before anybody asks")
			}
		}
		if text, fetched := label("default"); !strings.Contains(text,
			`"istio-injection":"enabled"`) || !fetched {
			t.Errorf("%s, %v", text, fetched)
		}
		synctest.Wait()
		if text, fetched := label("default"); !strings.Contains(text,
			`"istio-injection":"enabled"`) || fetched {
			t.Errorf("%s, %v", text, fetched)
		}
		w.server.Put(
			`{kind: Namespace, metadata: {name: default, labels: {istio-injection: disabled}}}`)
		synctest.Wait()
		if text, fetched := label("default"); !strings.Contains(text,
			`"istio-injection":"disabled"`) || fetched {
			t.Errorf("%s, %v", text, fetched)
		}
		if _, fetched, err := w.Namespace(t.Context(), "gone"); !source.IsNotFound(err) ||
			!fetched {
			t.Errorf("%v, %v", fetched, err)
		}
	})
}
