package serve_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// startNode starts an API server with pods, and an agent's server that answers from a cache of
// these pods. It returns a source that reads from the API server, and the agent's server.
func startNode(t testing.TB, pods ...string) (api source.Source, env *testEnv) {
	server := apiservertest.Start(t)
	server.Put(pods...)
	api = source.NewAPIServer(source.Options{Kubeconfig: server.Kubeconfig()})
	t.Cleanup(api.Close)
	client, err := apiclient.New(apiclient.Options{
		Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
	})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := podcache.New(podcache.Options{Client: client, NodeName: "node-2", Fetch: api})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cache.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	rulestest.Eventually(t, "the pods are listed", cache.Synced)
	return api, start(t, socket(t), serve.Options{Objects: cache})
}

// TestAgentAndAPIServerAgree checks that the agent's answers equal the API server's in all
// fields that decisions use.
func TestAgentAndAPIServerAgree(t *testing.T) {
	files, err := filepath.Glob("../../plugin/decide/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("files with pods: %q, error %v, want at least one file", files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var pod decide.Pod
			if err := yaml.Unmarshal(text, &pod); err != nil {
				t.Fatal(err)
			}
			api, env := startNode(t, string(text))
			ref := source.Ref{
				Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name, UID: pod.Metadata.UID,
			}
			c := client.New(client.Options{Socket: env.path, Timeout: time.Minute})
			fromAgent, err := c.Pod(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			fromAPI, err := api.Pod(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(fromAPI, fromAgent); d != "" {
				t.Errorf("pod (-API server +agent)\n%s", d)
			}
		})
	}
}

// BenchmarkPod requests an injected pod over the socket, and from the API server over an open
// connection.
func BenchmarkPod(b *testing.B) {
	text, err := os.ReadFile("../../plugin/decide/testdata/sidecar.yaml")
	if err != nil {
		b.Fatal(err)
	}
	api, env := startNode(b, string(text))
	ref := source.Ref{Namespace: "shop", Name: "orders-6d5f8c7b9-x2k4n"}
	for name, from := range map[string]source.Source{"agent": env.client(), "API server": api} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := from.Pod(b.Context(), ref); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReport reports the outcome of an ADD.
func BenchmarkReport(b *testing.B) {
	c := start(b, socket(b), serve.Options{Objects: echo}).client()
	for b.Loop() {
		if err := c.Report(agent.Add{
			Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
		}); err != nil {
			b.Fatal(err)
		}
	}
}
