package chaintest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A nodeAgent is the node agent's side of the socket. It records all received reports and log
// lines.
type nodeAgent struct {
	mu      sync.Mutex
	adds    []agent.Add
	logs    []string
	reports chan struct{} // receives a value for each ADD
	lines   chan struct{} // receives a value for each line of the log
}

// serveAgent starts the agent's server for the node.
func (n *node) serveAgent(t testing.TB, ag *nodeAgent) {
	t.Helper()
	ag.reports, ag.lines = make(chan struct{}, 100), make(chan struct{}, 100)
	server := serve.New(servetest.Fill(serve.Options{
		Socket: agent.SocketIn(n.run), Objects: ag,
		Log: func(line []byte) {
			ag.mu.Lock()
			ag.logs = append(ag.logs, string(line))
			ag.mu.Unlock()
			ag.lines <- struct{}{}
		},
		Added: func(a agent.Add) {
			ag.mu.Lock()
			ag.adds = append(ag.adds, a)
			ag.mu.Unlock()
			ag.reports <- struct{}{}
		},
		Failed: func(err error) { t.Errorf("agent: %v", err) },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	rulestest.Eventually(t, "the agent listens", server.Listening)
}

// Pod returns an injected pod with the requested name. The API server does not have this pod.
func (ag *nodeAgent) Pod(_ context.Context, ref source.Ref) ([]byte, bool, error) {
	return []byte(`{"metadata":{"namespace":"` + ref.Namespace + `","name":"` + ref.Name +
		`","uid":"` + ref.UID +
		`","annotations":{"sidecar.istio.io/status":"{}"}},"spec":{"containers":[{"name":"istio-proxy"}]}}`), false, nil
}

func (ag *nodeAgent) Namespace(context.Context, string) ([]byte, bool, error) {
	panic("unexpected request for a namespace: no namespace selector is configured")
}

func (ag *nodeAgent) Ready(context.Context) error { return nil }

// nextReport waits for the next report and returns it.
func (ag *nodeAgent) nextReport(t testing.TB) agent.Add {
	t.Helper()
	receive(t, ag.reports, "report of an ADD")
	ag.mu.Lock()
	defer ag.mu.Unlock()
	return ag.adds[len(ag.adds)-1]
}

// waitForLine waits for the next line of the log, which may arrive after the report, and returns
// all lines so far.
func (ag *nodeAgent) waitForLine(t testing.TB) []string {
	t.Helper()
	receive(t, ag.lines, "line of the log")
	ag.mu.Lock()
	defer ag.mu.Unlock()
	return slices.Clone(ag.logs)
}

func receive(t testing.TB, from <-chan struct{}, description string) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(timeout):
		t.Fatalf("the agent received no %s", description)
	}
}

// TestPodsComeFromTheAgent adds pods that only the agent knows, and checks the reports and the log
// that the agent receives.
func TestPodsComeFromTheAgent(t *testing.T) {
	t.Parallel()
	n, ag := newNode(t), &nodeAgent{}
	n.api.Always(apiservertest.InternalError())
	n.serveAgent(t, ag)
	p := n.newSandbox(t)
	c := chain{version: latest, dualStack: true}
	p.mustAdd(t, c)
	if p.rules(t) == "" {
		t.Error("the pod has no rules, want some")
	}
	add, logs := ag.nextReport(t), ag.waitForLine(t)
	if add.Duration <= 0 || add.Bytes < 1000 {
		t.Errorf("the plugin reported a duration of %v and %d bytes, want more than 0 and at least 1000",
			add.Duration, add.Bytes)
	}

	if add.Result != "success" || add.Decision != "redirect" || add.Reason != "mesh-pod" ||
		add.Backend != "nft" ||
		!slices.Equal(add.Uncaptured, []string{"ipv6"}) || add.Name != p.name || add.UID != p.uid {
		t.Errorf("the plugin reported %+v, want pod %s redirected, with IPv6 uncaptured", add, p.name)
	}
	if len(logs) != 1 || !strings.Contains(logs[0], `"msg":"ADD"`) ||
		!strings.Contains(logs[0], `"ipv6-uncaptured":`) {
		t.Errorf("the plugin logged %q, want one line of an ADD that reports uncaptured IPv6", logs)
	}
	if err := n.status(t, chain{version: latest}); err != nil {
		t.Errorf("STATUS: %v", err)
	}

	// A skipped pod and a failed ADD are reported too.
	q := n.newSandbox(t)
	if _, err := q.add(t, chain{
		version: latest, fields: map[string]any{"exclude_namespaces": []string{namespace}},
	}); err != nil {
		t.Error(err)
	}
	if add := ag.nextReport(t); add.Decision != "skip" || add.Reason != "namespace-excluded" ||
		add.Backend != "none" {
		t.Errorf("the plugin reported %+v, want a skipped pod of an excluded namespace", add)
	}
	_, err := n.newSandbox(t).add(t, chain{
		version: latest, fields: map[string]any{"backend": "ebpf"},
	})
	if add := ag.nextReport(t); err == nil || add.Result != "error" || add.Decision != "undecided" ||
		add.Reason != "undecided" {
		t.Errorf("ADD: error %v, report %+v, want a failure before the decision", err, add)
	}
}

// TestADDSucceedsDespiteAFailingAgent checks ADD on a node whose agent is missing or hangs. ADD
// waits for the agent's timeout at most once, and then has the whole budget for the API server.
func TestADDSucceedsDespiteAFailingAgent(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		listen func(t testing.TB, path string)
		delay  time.Duration // in addition to the time of an ADD
	}{
		{"the agent never ran", func(testing.TB, string) {}, 0},
		{"only the agent's socket exists", func(t testing.TB, path string) { listenOn(t, path).Close() }, 0},
		{"the agent accepts no connections", func(t testing.TB, path string) {
			listenOn(t, path)
		}, time.Second},
		{"the agent accepts connections and does not answer", func(t testing.TB, path string) {
			l := listenOn(t, path)
			var held []net.Conn // the garbage collector would close connections without a reference
			go func() {
				for {
					conn, err := l.AcceptUnix()
					if err != nil {
						return
					}
					held = append(held, conn)
				}
			}()
		}, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t)
			path := agent.SocketIn(n.run)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			row.listen(t, path)
			p := n.newPod(t, "sidecar")
			add := func(p *pod, budget time.Duration) (elapsed time.Duration, err error) {
				fields := map[string]any{
					"api_budget": budget.String(), "api_try_timeout": budget.String(),
				}
				x := p.execution(t, "ADD", chain{version: latest, fields: fields}, someResult(p))
				start := time.Now()
				err = x.run(n)
				return time.Since(start), err
			}
			elapsed, err := add(p, timeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("ADD took %v", elapsed)
			// On a busy machine ADD takes seconds even without a delay.
			if elapsed < row.delay || elapsed > row.delay+timeout {
				t.Errorf("ADD took %v, want between %v and %v", elapsed, row.delay, row.delay+timeout)
			}
			if p.rules(t) == "" {
				t.Error("the pod has no rules, want some")
			}
			n.checkLogged(t, p, `"decision":"redirect"`)

			n.api.Always(apiservertest.NoReply())
			const budget = time.Second
			if elapsed, err := add(n.newPod(t, "sidecar"), budget); err == nil ||
				elapsed < row.delay+budget {
				t.Errorf("with an API server that does not answer, ADD took %v, want at least %v and "+
					"an error; got error %v", elapsed, row.delay+budget, err)
			}
		})
	}
}

// listenOn creates a socket whose file remains after Close.
func listenOn(t testing.TB, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
