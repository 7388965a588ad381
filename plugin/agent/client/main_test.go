package client_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

// webPod is the body that an agent sends for it.
const webPod = `{"metadata":{"namespace":"default","name":"web","uid":"556740d7","annotations":{"sidecar.istio.io/status":"{}"}},` +
	`"spec":{"containers":[{"name":"istio-proxy"}]}}`

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
