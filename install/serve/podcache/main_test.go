package podcache_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	// client-go's own wait for some time after the last error of the process; a bubble of synctest
	// begins long before that.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

const (
	webPod = `{metadata: {name: web, uid: 556740d7, annotations: {sidecar.istio.io/status: "{}"}},
		spec: {nodeName: here, containers: [{name: istio-proxy, args: [proxy, sidecar]}]}}`
	elsewhere        = `{metadata: {name: other, uid: b}, spec: {nodeName: there}}`
	defaultNamespace = `{kind: Namespace, metadata: {name: default, labels: {istio-injection: enabled}}}`
)

// optionsFor returns how a cache in a pod would reach the server.
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

// world is a cache of a server in memory.
type world struct {
	*podcache.Cache
	t      *testing.T
	server *apiservertest.Server
	stop   func()

	mu   sync.Mutex
	told []error
}

// start starts a cache, which has everything when this returns, unless the server misbehaves. It
// must be in a bubble of synctest.
func start(t *testing.T, prepare ...func(*apiservertest.Server)) *world {
	t.Helper()
	w := &world{t: t, server: apiservertest.StartInMemory(t)}
	w.server.Put(webPod, elsewhere, defaultNamespace)
	for _, f := range prepare {
		f(w.server)
	}
	api := source.NewAPIServer(source.Options{
		Kubeconfig: w.server.Kubeconfig(), Dial: w.server.Dial,
	})
	var err error
	w.Cache, err = podcache.New(podcache.Options{
		Client: client(t, optionsFor(w.server)), NodeName: "here", Fetch: api,
		Broken: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, w.Cache)
	w.stop = func() {
		stop()
		api.Close()
	}
	t.Cleanup(w.stop)
	synctest.Wait()
	return w
}

// run runs a cache until it is stopped.
func run(t *testing.T, m *podcache.Cache) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// broken returns the failures that were told since the last call.
func (w *world) broken() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

// pod asks for a pod, and reports whether it was fetched.
func (w *world) pod(ref source.Ref) (*decide.Pod, bool) {
	w.t.Helper()
	text, fetched, err := w.Pod(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	pod := new(decide.Pod)
	if err := json.Unmarshal(text, pod); err != nil {
		w.t.Fatal(err)
	}
	return pod, fetched
}

// asked are the paths of the requests that were no list and no watch.
func (w *world) asked() []string {
	var paths []string
	for _, r := range w.server.Requests() {
		if r.Path != "/api/v1/pods" && r.Path != "/api/v1/namespaces" {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

func names(items []podcache.Item) string {
	text := ""
	for _, i := range items {
		text += fmt.Sprintf("%s=%s ", i.Ref, i.UID)
	}
	return text
}
