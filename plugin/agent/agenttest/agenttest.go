// Package agenttest provides a fake node agent for tests. The tests define its answers.
package agenttest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

// TempDir returns a directory for sockets, which is removed at the end of the test. Unlike
// [testing.T.TempDir], it does not include the name of the test in the path, because the path of a
// socket has at most 107 bytes.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Listen creates a socket and returns its path. It accepts one connection after the other, calls
// serve for each, and then closes the connection.
func Listen(t testing.TB, serve func(*net.UnixConn)) string {
	t.Helper()
	path := filepath.Join(TempDir(t), "s")
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

// CheckText checks that the text of the error contains each of the texts.
func CheckText(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with the texts %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q in it", err, text)
		}
	}
}
