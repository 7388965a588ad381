package ztunnel_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testEnv is a listening server.
type testEnv struct {
	*ztunnel.Server
	path string
	logs *observer.ObservedLogs
	// count is the number of connections that the server last reported (see ztunnel.New).
	count atomic.Int64
	stop  func()
}

func socket(t testing.TB) string { return filepath.Join(agenttest.TempDir(t), "run", "ztunnel.sock") }

func start(t testing.TB, path string) *testEnv {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	env := &testEnv{path: path, logs: logs}
	env.Server = ztunnel.New(zap.New(core), func(n int) { env.count.Store(int64(n)) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- env.Serve(ctx, path) }()
	stopped := false
	env.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// The process of an agent would end here, and its descriptors of the pods would be closed.
		for _, p := range env.State().Pods {
			if err := env.Remove(context.Background(), p.UID); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(env.stop)
	rulestest.Eventually(t, "the server listens", func() bool { return env.State().Listening })
	return env
}

// dial connects a client that the test controls.
func (env *testEnv) dial(t testing.TB) *ztunneltest.Client {
	t.Helper()
	c, err := ztunneltest.Dial(env.path, zds.Version_V1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// waitConnected waits until n ztunnels have sent a hello, and ready of them have acknowledged the
// snapshot.
func (env *testEnv) waitConnected(t testing.TB, n, ready int) {
	t.Helper()
	description := fmt.Sprintf("%d ztunnels are connected, %d of them ready", n, ready)
	rulestest.Eventually(t, description, func() bool {
		connections := env.State().Connections
		got := 0
		for _, c := range connections {
			if c.Ready {
				got++
			}
		}
		return len(connections) == n && got == ready
	})
}

// waitLog waits for a message in the log, and returns the entry.
func (env *testEnv) waitLog(t testing.TB, message string) observer.LoggedEntry {
	t.Helper()
	rulestest.Eventually(t, "the log has "+message, func() bool {
		return env.logs.FilterMessage(message).Len() > 0
	})
	return env.logs.FilterMessage(message).All()[0]
}

// pod returns a pod with its own network namespace.
func pod(t testing.TB, name string) ztunnel.Pod {
	t.Helper()
	return ztunnel.Pod{
		UID: "uid-" + name, Name: name, Namespace: "default", ServiceAccount: "sa-" + name,
		Netns: netnstest.New(t),
	}
}

// expectAndAck receives the next message, compares it in the format of ztunneltest.Describe, and
// acknowledges it.
func expectAndAck(t testing.TB, c *ztunneltest.Client, want string) {
	t.Helper()
	expectUnacknowledged(t, c, want)
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
}

// expectUnacknowledged is like expectAndAck, and does not acknowledge the message.
func expectUnacknowledged(t testing.TB, c *ztunneltest.Client, want string) {
	t.Helper()
	r, ns, err := c.Next()
	if err != nil {
		t.Fatalf("no message: %v; want %q", err, want)
	}
	_ = ns.Close()
	if got := ztunneltest.Describe(r); got != want {
		t.Fatalf("message %q, want %q", got, want)
	}
}
