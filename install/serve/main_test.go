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
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

// objects is a [serve.Objects] that returns the answers of a test.
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

// echo returns a pod with the requested name.
var echo = objects{pod: func(_ context.Context, r source.Ref) ([]byte, bool, error) {
	return fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q,"uid":%q}}`, r.Namespace, r.Name,
		r.UID), false, nil
}}

// failing returns objects whose methods Pod and Ready return the error.
func failing(err error) objects {
	return objects{ready: err, pod: func(context.Context, source.Ref) ([]byte, bool, error) {
		return nil, false, err
	}}
}

// testEnv is a running server with its reports.
type testEnv struct {
	*serve.Server
	path string
	stop func()

	mu      sync.Mutex
	reports []string
	more    chan struct{} // closed and replaced with each report
}

// socket returns the path of a socket that does not exist yet.
func socket(t testing.TB) string { return agent.SocketIn(filepath.Join(agenttest.TempDir(t), "run")) }

// start starts a server, and returns when it listens.
func start(t testing.TB, path string, o serve.Options) *testEnv {
	t.Helper()
	env := &testEnv{path: path, more: make(chan struct{})}
	o.Socket = path
	o.Log = func(line []byte) { env.report("log %s", line) }
	o.Added = func(a agent.Add) {
		env.report("add %s %s %s %s %v %d", a.Name, a.Result, a.Decision, a.Backend, a.Duration,
			a.Bytes)
	}
	o.Answered = func(r serve.Outcome, elapsed time.Duration) { env.report("answered %s %v", r, elapsed >= 0) }
	o.Failed = func(err error) { env.report("failed %v", err) }
	env.Server = serve.New(servetest.Fill(o))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		env.Run(ctx)
	}()
	env.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(env.stop)
	for !env.Listening() {
		select {
		case <-done:
			t.Fatalf("Run returned before the server listened; reported: %q", env.reported())
		case <-time.After(time.Millisecond):
		}
	}
	return env
}

func (env *testEnv) report(format string, arguments ...any) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.reports = append(env.reports, fmt.Sprintf(format, arguments...))
	close(env.more)
	env.more = make(chan struct{})
}

func (env *testEnv) reported() []string {
	env.mu.Lock()
	defer env.mu.Unlock()
	return append([]string(nil), env.reports...)
}

func (env *testEnv) changed() <-chan struct{} {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.more
}

// wait waits for a report that contains the text.
func (env *testEnv) wait(t testing.TB, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		changed := env.changed()
		for _, report := range env.reported() {
			if strings.Contains(report, text) {
				return
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no report contains %q; reported: %q", text, env.reported())
		}
	}
}

// client returns a client with a timeout that is sufficient on a busy machine.
func (env *testEnv) client() *client.Client {
	return client.New(client.Options{Socket: env.path, Timeout: time.Minute})
}

func policy() json.RawMessage { return json.RawMessage(`{"unreadable_pods":"skip"}`) }
