package agent_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// located is the body of an answer that says where a pod is.
const located = `{"namespace":"default","name":"web","uid":"556740d7","netns":"/proc/7/ns/net","decision":"skip","reason":"not-injected"}`

// within is a context for one question.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// listen makes a socket on which each connection is handed to serve, and then closed. It returns the path.
func listen(t testing.TB, serve func(*net.UnixConn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

// reply reads a request and sends what is given.
func reply(t testing.TB, answer []byte) func(*net.UnixConn) {
	return func(c *net.UnixConn) {
		if _, err := agent.ReadFrame(c, agent.MaxRequest); err != nil {
			t.Errorf("request: %v", err)
		}
		_, _ = c.Write(answer)
	}
}

// frames makes frames of texts.
func frames(texts ...string) []byte {
	var b []byte
	for _, text := range texts {
		b = agent.AppendFrame(b, []byte(text))
	}
	return b
}

func checkText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in: %v", part, err)
		}
	}
}
