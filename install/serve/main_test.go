package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

// objects answers as a test wants.
type objects struct {
	pod   func(ctx context.Context, ref source.Ref) ([]byte, bool, error)
	ready error
}

func (o objects) Pod(ctx context.Context, ref source.Ref) ([]byte, bool, error) {
	return o.pod(ctx, ref)
}

func (o objects) Namespace(_ context.Context, name string) ([]byte, bool, error) {
	return fmt.Appendf(nil, `{"metadata":{"name":%q,"labels":{"a":"b"}}}`, name), true, nil
}

func (o objects) Ready(context.Context) error { return o.ready }

// echo answers with a pod that has the name that was asked for.
var echo = objects{pod: func(_ context.Context, r source.Ref) ([]byte, bool, error) {
	return fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q,"uid":%q}}`, r.Namespace, r.Name,
		r.UID), false, nil
}}

// failing answers every question about a pod by an error.
func failing(err error) objects {
	return objects{ready: err, pod: func(context.Context, source.Ref) ([]byte, bool, error) {
		return nil, false, err
	}}
}

// world is a running server and what it has told.
type world struct {
	*serve.Server
	path string
	stop func()

	mu   sync.Mutex
	told []string
	more chan struct{} // closed and made anew with each
}

// socket is the path of a socket that does not exist yet.
func socket(t testing.TB) string { return agent.SocketIn(filepath.Join(t.TempDir(), "run")) }

// start starts a server, which listens when this returns.
func start(t testing.TB, path string, o serve.Options) *world {
	t.Helper()
	w := &world{path: path, more: make(chan struct{})}
	o.Socket = path
	o.Log = func(line []byte) { w.tell("log %s", line) }
	o.Added = func(a agent.Add) {
		w.tell("add %s %s %s %s %v %d", a.Name, a.Result, a.Decision, a.Backend, a.Duration,
			a.Bytes)
	}
	o.Answered = func(r serve.Result, took time.Duration) { w.tell("answered %s %v", r, took >= 0) }
	o.Failed = func(err error) { w.tell("failed %v", err) }
	w.Server = serve.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(w.stop)
	for !w.Listening() {
		select {
		case <-done:
			t.Fatalf("it has ended: %v", w.all())
		case <-time.After(time.Millisecond):
		}
	}
	return w
}

func (w *world) tell(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf(format, arguments...))
	close(w.more)
	w.more = make(chan struct{})
}

func (w *world) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.told...)
}

func (w *world) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.more
}

// wait waits until something was told that has the text.
func (w *world) wait(t testing.TB, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		changed := w.changed()
		for _, told := range w.all() {
			if strings.Contains(told, text) {
				return
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("nothing told with %q, but %q", text, w.all())
		}
	}
}

// client has more patience than a busy machine takes.
func (w *world) client() *client.Client {
	return client.New(client.Options{Socket: w.path, Timeout: 20 * time.Second})
}

func policy() json.RawMessage { return json.RawMessage(`{"unreadable_pods":"skip"}`) }
