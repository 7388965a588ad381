package agenttest

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

// Listen creates a socket and returns its path. It accepts one connection after the other, calls
// serve for each, and then closes the connection.
func Listen(t testing.TB, serve func(*net.UnixConn)) string {
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

// Reply returns a function for [Listen] that reads a request and sends the bytes of answer.
// [Frames] encodes valid answers.
func Reply(t testing.TB, answer []byte) func(*net.UnixConn) {
	return func(c *net.UnixConn) {
		if _, err := agent.ReadFrame(c, agent.MaxRequest); err != nil {
			t.Errorf("request: %v", err)
		}
		_, _ = c.Write(answer)
	}
}

// Frames encodes texts as frames.
func Frames(texts ...string) []byte {
	var b []byte
	for _, text := range texts {
		b = agent.AppendFrame(b, []byte(text))
	}
	return b
}
