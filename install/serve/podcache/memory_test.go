package podcache_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

const (
	// largePods is a number of pods that together are larger than maxListMemory.
	largePods = 40
	// largePodBytes is the size of a pod that etcd just accepts.
	largePodBytes = 1_380_000
	// maxListMemory limits the memory for a list of largePods pods.
	maxListMemory = 40 << 20
)

// TestMemoryOfLargePods measures the memory that a cache needs for a list of large pods, in a
// process of its own.
func TestMemoryOfLargePods(t *testing.T) {
	if url := os.Getenv("SLUICE_API_SERVER"); url != "" {
		listLargePods(t, apiclient.Options{
			Server: url, TokenFile: os.Getenv("SLUICE_TOKEN"), CAFile: os.Getenv("SLUICE_CA"),
		})
		return
	}
	if budgettest.RaceDetector {
		t.Skip("the race detector needs memory of its own")
	}
	for name, behaviors := range map[string][]apiservertest.Behavior{
		"a list that a watch sends": nil,
		"a list that a server before Kubernetes 1.34 sends": {apiservertest.Reply(422, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)},
	} {
		t.Run(name, func(t *testing.T) {
			server := apiservertest.Start(t)
			env := make([]any, largePodBytes/1000)
			for i := range env {
				env[i] = map[string]any{"name": fmt.Sprint("E", i), "value": strings.Repeat("x", 1000)}
			}
			spec := map[string]any{
				"nodeName": "here", "containers": []any{map[string]any{"name": "a", "env": env}},
			}
			for i := range largePods {
				server.PutPod(map[string]any{
					"apiVersion": "v1", "kind": "Pod", "spec": spec,
					"metadata": map[string]any{"namespace": "shop", "name": fmt.Sprint("web-", i)},
				})
			}
			server.Next(behaviors...)
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfLargePods$", "-test.v")
			// Without a limit, the memory depends on how soon a busy machine runs the collector.
			cmd.Env = append(os.Environ(), "GOMEMLIMIT=32MiB", "SLUICE_API_SERVER="+server.URL(),
				"SLUICE_TOKEN="+server.TokenFile(), "SLUICE_CA="+server.CAFile())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Error(err)
			}
			t.Logf("%s", out)
		})
	}
}

// listLargePods runs a cache, and checks the memory that it needs until it is synced.
func listLargePods(t *testing.T, o apiclient.Options) {
	before := budgettest.MaxResident(t)
	cache, err := podcache.New(podcache.Options{
		Client: client(t, o), NodeName: "here", Fetch: source.Fallback(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, cache)()
	rulestest.Eventually(t, "the cache is synced", cache.Synced)
	used := budgettest.MaxResident(t) - before
	t.Logf("%d pods, %d MiB", len(cache.Pods()), used>>20)
	if n := len(cache.Pods()); n != largePods || used > maxListMemory {
		t.Errorf("%d pods with %d MiB, want %d pods with at most %d MiB", n, used>>20, largePods,
			maxListMemory>>20)
	}
}
