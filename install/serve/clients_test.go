package serve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestOnlyRootIsAnswered checks that other users get no answer, even if the mode of the socket
// permits them to connect.
func TestOnlyRootIsAnswered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the user")
	}
	env := start(t, socket(t), serve.Options{Objects: echo})
	var conn net.Conn
	err := netnstest.OnNewThread(func() (err error) {
		if err := netnstest.ChangeUser(65534); err != nil {
			return err
		}
		conn, err = net.Dial("unix", env.path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(agent.AppendFrame(nil,
		[]byte(`{"version":1,"verb":"pod","namespace":"default","name":"web"}`)))
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("answer %q, want none", answer)
	}
	env.wait(t, "connection from uid 65534 rejected")
}

func TestOtherUsersCannotReachTheSocket(t *testing.T) {
	path := socket(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	start(t, path, serve.Options{Objects: echo})
	for p, mode := range map[string]os.FileMode{
		path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700,
	} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("the mode of %s is %v, want %v", p, info.Mode(), mode)
		}
	}
}

// TestConnectionsAreBounded checks that callers wait while the limit of connections is reached, and
// that all callers are answered. The limit is reached exactly: each answer admits the next caller.
func TestConnectionsAreBounded(t *testing.T) {
	const limit, callers = 64, 100
	var begun atomic.Int32
	answer := make(chan struct{})
	defer close(answer)
	o := objects{pod: func(ctx context.Context, r source.Ref) ([]byte, bool, error) {
		begun.Add(1)
		<-answer
		return echo.Pod(ctx, r)
	}}
	env := start(t, socket(t), serve.Options{Objects: o})
	var conns []net.Conn
	for range callers {
		c, err := net.Dial("unix", env.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		request := `{"version":1,"verb":"pod","namespace":"default","name":"web"}`
		if _, err := c.Write(agent.AppendFrame(nil, []byte(request))); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for answered := range callers {
		want := int32(min(limit+answered, callers))
		rulestest.Eventually(t, fmt.Sprintf("%d requests have begun", want), func() bool {
			return begun.Load() >= want
		})
		if n := begun.Load(); n > want {
			t.Fatalf("after %d answers %d requests have begun, want %d", answered, n, want)
		}
		answer <- struct{}{}
	}
	for _, c := range conns {
		if head, err := agent.ReadFrame(c, agent.MaxAnswer); err != nil || string(head) != `{"version":1}` {
			t.Errorf("answer %s, error %v, want an answer without an error", head, err)
		}
	}
}

// TestSilentConnectionsAreClosed checks that connections without a request are closed, and that
// further connections are then accepted.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel() // waits for the time limit
	env := start(t, socket(t), serve.Options{Objects: echo})
	for range 64 {
		c, err := net.Dial("unix", env.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c := client.New(client.Options{Socket: env.path, Timeout: time.Minute})
	if _, err := c.Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	env.wait(t, "read a request: read unix")
}

// TestClientsThatDoNotReadAreClosed checks that the connections of clients that do not read their
// answers are closed, and that further connections are then accepted.
func TestClientsThatDoNotReadAreClosed(t *testing.T) {
	t.Parallel()          // waits for the time limit
	const large = 1 << 20 // more than the buffers of a socket
	o := objects{pod: func(ctx context.Context, r source.Ref) ([]byte, bool, error) {
		if r.Name == "large" {
			return fmt.Appendf(nil, `{"metadata":{"name":%q}}`, strings.Repeat("x", large)), false, nil
		}
		return echo.Pod(ctx, r)
	}}
	env := start(t, socket(t), serve.Options{Objects: o})
	for range 64 {
		c, err := net.Dial("unix", env.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		request := `{"version":1,"verb":"pod","namespace":"default","name":"large"}`
		if _, err := c.Write(agent.AppendFrame(nil, []byte(request))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := env.client().Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	env.wait(t, "send an answer: write unix")
}

// FuzzServer sends arbitrary data: the server keeps running, and answers the next request.
func FuzzServer(f *testing.F) {
	f.Add(agent.AppendFrame(nil,
		[]byte(`{"version":1,"verb":"pod","namespace":"default","name":"web"}`)))
	f.Add(agent.AppendFrame(nil,
		[]byte(`{"version":1,"verb":"add","add":{"result":"success","decision":"skip","reason":"host-network","backend":"none"}}`)))
	f.Add([]byte{0, 0, 0, 9, '{'})
	env := start(f, socket(f), serve.Options{Objects: echo})
	f.Fuzz(func(t *testing.T, request []byte) {
		c, err := net.Dial("unix", env.path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(request)
		_ = c.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		if _, err := env.client().Pod(t.Context(), web); err != nil {
			t.Error(err)
		}
	})
}
