package source_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// paths returns the paths of the received requests.
func paths(s *apiservertest.Server) []string {
	var paths []string
	for _, r := range s.Requests() {
		paths = append(paths, r.Path)
	}
	return paths
}

func TestPodIsDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		got, err := api.Pod(t.Context(), web)
		if err != nil {
			t.Fatal(err)
		}
		uid := int64(1337)
		want := &decide.Pod{
			Metadata: decide.Metadata{
				Namespace: "default", Name: "web", UID: web.UID,
				Labels:      map[string]string{"app": "web"},
				Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			},
			Spec: decide.PodSpec{Containers: []decide.Container{{
				Name: "istio-proxy", Args: []string{"proxy", "sidecar"},
				SecurityContext: &decide.SecurityContext{RunAsUser: &uid},
			}}},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("pod (-want +got)\n%s", d)
		}
		if d := cmp.Diff([]string{"/api/v1/namespaces/default/pods/web"}, paths(server)); d != "" {
			t.Errorf("requested paths (-want +got)\n%s", d)
		}
		header := server.Requests()[0].Header
		if header.Get("User-Agent") != "sluice-cni" || header.Get("Accept") != "application/json" ||
			header.Get("Accept-Encoding") != "" {
			t.Errorf("request header %v, want User-Agent, Accept and no Accept-Encoding", header)
		}
	})
}

func TestWhichPodIsReturned(t *testing.T) {
	for _, row := range []struct {
		name string
		ref  source.Ref
		kind source.Kind
		text string
	}{
		{"the pod with the UID", web, "", ""},
		{
			"any pod, if the runtime passes no UID",
			source.Ref{Namespace: "default", Name: "web"},
			"", "",
		},
		{
			"a static pod with the hash of its configuration",
			source.Ref{
				Namespace: "default", Name: "static", UID: "8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d",
			},
			"", "",
		},
		{
			"a static pod with the UID of its mirror pod",
			source.Ref{
				Namespace: "default", Name: "static", UID: "0e1b6c52-6a7c-4a3f-9a53-3a2f6a7b9a10",
			},
			"", "",
		},
		{
			"not a static pod with another configuration",
			source.Ref{Namespace: "default", Name: "static", UID: "00"},
			source.Replaced, "it replaced the requested pod",
		},
		{
			"not a deleted pod",
			source.Ref{Namespace: "default", Name: "gone", UID: "00"},
			source.NotFound,
			"pod default/gone: API server memory.test:443: it answers 404: not found",
		},
		{
			"not a pod of another namespace",
			source.Ref{Namespace: "other", Name: "web", UID: web.UID},
			source.NotFound,
			"pod other/web",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, api := startInMemory(t)
				requestPod(t.Context(), api, row.ref).check(t, row.kind, row.text)
			})
		})
	}
}

func TestInvalidNamesAreNotRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		long := strings.Repeat("a", 254)
		for _, name := range []string{
			"", ".", "..", "../secrets/x", "a/b", "a%2fb", "web?x=y", "web#", "Web", "a b", "a\nb",
			"-a", "a-", "a..b", "ä", long,
		} {
			requestPod(t.Context(), api, source.Ref{
				Namespace: "default", Name: name,
			}).check(t, source.NotFound, "not names that Kubernetes allows")
			requestPod(t.Context(), api, source.Ref{
				Namespace: name, Name: "web",
			}).check(t, source.NotFound, "not names that Kubernetes allows")
			if _, err := api.Namespace(t.Context(), name); !source.IsNotFound(err) {
				t.Errorf("namespace %q: error %v, want the kind not-found", name, err)
			}
		}
		requestPod(t.Context(), api, source.Ref{
			Namespace: "a.b", Name: "web",
		}).check(t, source.NotFound, "not names that Kubernetes allows")
		requestPod(t.Context(), api, source.Ref{
			Namespace: long[:64], Name: "web",
		}).check(t, source.NotFound, "not names that Kubernetes allows")
		if requested := paths(server); len(requested) > 0 {
			t.Errorf("requests %q, want none", requested)
		}
		requestPod(t.Context(), api, source.Ref{
			Namespace: long[:63], Name: long[:253],
		}).check(t, source.NotFound, "it answers 404")
		requestPod(t.Context(), api, source.Ref{
			Namespace: "a-0", Name: "0.b-1",
		}).check(t, source.NotFound, "it answers 404")
	})
}

func TestNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		server.Next(apiservertest.InternalError())
		got, err := api.Namespace(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]string{"istio-injection": "enabled"},
			got.Metadata.Labels); d != "" {
			t.Errorf("labels (-want +got)\n%s", d)
		}
		if _, err := api.Namespace(t.Context(), "gone"); !source.IsNotFound(err) {
			t.Errorf("a namespace that does not exist: error %v, want the kind not-found", err)
		}
		if d := cmp.Diff([]string{
			"/api/v1/namespaces/default", "/api/v1/namespaces/default", "/api/v1/namespaces/gone",
		}, paths(server)); d != "" {
			t.Errorf("requested paths (-want +got)\n%s", d)
		}
		server.Always(apiservertest.Reply(200, "application/json",
			`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"other"}}`))
		_, err = api.Namespace(t.Context(), "default")
		checkText(t, err,
			`namespace default: API server memory.test:443: its answer is the object "other"`)
		server.Always(apiservertest.Reply(200, "application/json", webPod))
		_, err = api.Namespace(t.Context(), "default")
		checkText(t, err,
			`namespace default: API server memory.test:443: its answer is not a Namespace`)
	})
}

func TestPodAndNamespaceShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, api := startInMemory(t)
		_, first := api.Pod(t.Context(), web)
		_, second := api.Namespace(t.Context(), "default")
		if err := errors.Join(first, second); err != nil {
			t.Fatal(err)
		}
		if n := server.Connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

func TestReady(t *testing.T) {
	for _, row := range []struct {
		name     string
		behavior apiservertest.Behavior
		kind     source.Kind
		text     string
	}{
		{"pods can be read", apiservertest.Normal(), "", ""},
		{
			"the credentials are rejected", apiservertest.Unauthorized(),
			source.Unauthorized, "does not accept the token",
		},
		{"the permission to read pods is missing", apiservertest.Forbidden(), source.Forbidden, "403"},
		{
			"the API server does not answer", apiservertest.NoReply(), source.Unavailable,
			"API server memory.test:443: no answer within 4s",
		},
		{
			"the API server fails, and the request is not retried", apiservertest.InternalError(),
			source.Unavailable, "500",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, api := startInMemory(t)
				server.Always(row.behavior)
				start := time.Now()
				err := api.Ready(t.Context())
				if source.KindOf(err) != row.kind {
					t.Fatalf("kind %q, want %q: %v", source.KindOf(err), row.kind, err)
				}
				if err != nil {
					checkText(t, err, row.text)
				}
				if elapsed := time.Since(start); elapsed > 4*time.Second || len(server.Requests()) != 1 {
					t.Errorf("%d requests in %v, want 1 in at most 4s", len(server.Requests()), elapsed)
				}
			})
		})
	}
}
