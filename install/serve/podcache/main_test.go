package podcache_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) {
	// client-go's error handlers limit their rate by the time since the last error of the process.
	// They would wait, because the clock of a bubble of synctest is long before that time.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

const (
	webPod = `{metadata: {name: web, uid: 556740d7, annotations: {sidecar.istio.io/status: "{}"}},
		spec: {nodeName: here, containers: [{name: istio-proxy, args: [proxy, sidecar]}]}}`
	otherNodePod     = `{metadata: {name: other, uid: b}, spec: {nodeName: there}}`
	defaultNamespace = `{kind: Namespace, metadata: {name: default, labels: {istio-injection: enabled}}}`
)

// optionsFor returns the options with which a cache in a pod connects to the server.
func optionsFor(server *apiservertest.Server) apiclient.Options {
	return apiclient.Options{
		Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
		Dial: server.Dial,
	}
}

// client returns a client of the API server.
func client(t testing.TB, o apiclient.Options) *apiclient.Client {
	t.Helper()
	c, err := apiclient.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testEnv is a cache of a server in memory.
type testEnv struct {
	*podcache.Cache
	t      *testing.T
	server *apiservertest.Server
	stop   func()

	mu       sync.Mutex
	reported []error
}

// start starts a cache, and returns when the cache is synced or waits for the server. It must be
// called in a bubble of synctest.
func start(t *testing.T, prepare ...func(*apiservertest.Server)) *testEnv {
	t.Helper()
	env := &testEnv{t: t, server: apiservertest.StartInMemory(t)}
	env.server.Put(webPod, otherNodePod, defaultNamespace)
	for _, f := range prepare {
		f(env.server)
	}
	api := source.NewAPIServer(source.Options{
		Kubeconfig: env.server.Kubeconfig(), Dial: env.server.Dial,
	})
	var err error
	env.Cache, err = podcache.New(podcache.Options{
		Client: client(t, optionsFor(env.server)), NodeName: "here", Fetch: api,
		WatchFailed: func(resource string, err error) {
			if !strings.HasPrefix(err.Error(), "watch "+resource+": ") {
				t.Errorf("the error of the watch of %s is %v", resource, err)
			}
			env.mu.Lock()
			defer env.mu.Unlock()
			env.reported = append(env.reported, err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, env.Cache)
	env.stop = func() {
		stop()
		api.Close()
	}
	t.Cleanup(env.stop)
	synctest.Wait()
	return env
}

// run runs a cache until stop is called.
func run(t *testing.T, cache *podcache.Cache) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cache.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// takeFailures returns the failures reported since the last call.
func (env *testEnv) takeFailures() []error {
	env.mu.Lock()
	defer env.mu.Unlock()
	reported := env.reported
	env.reported = nil
	return reported
}

// pod requests a pod from the cache, and reports whether the cache fetched the pod.
func (env *testEnv) pod(ref source.Ref) (*decide.Pod, bool) {
	env.t.Helper()
	text, fetched, err := env.Pod(env.t.Context(), ref)
	if err != nil {
		env.t.Fatal(err)
	}
	pod := new(decide.Pod)
	if err := json.Unmarshal(text, pod); err != nil {
		env.t.Fatal(err)
	}
	return pod, fetched
}

// fetchedPaths returns the paths of the requests that are neither lists nor watches.
func (env *testEnv) fetchedPaths() []string {
	var paths []string
	for _, r := range env.server.Requests() {
		if r.Path != "/api/v1/pods" && r.Path != "/api/v1/namespaces" {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// names returns the names and the UIDs of pods.
func names(items []podcache.Item) string {
	text := ""
	for _, i := range items {
		text += fmt.Sprintf("%s=%s ", i.Ref, i.UID)
	}
	return text
}
