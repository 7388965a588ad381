package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// newClient returns a client with a long timeout, because an agent on a busy machine may take more
// than a second to answer.
func newClient(path string) *client.Client {
	return client.New(client.Options{Socket: path, Timeout: 30 * time.Second})
}

func TestPodIsRequested(t *testing.T) {
	var requested string
	path := agenttest.Listen(t, func(c *net.UnixConn) {
		text, err := agent.ReadFrame(c, agent.MaxRequest)
		if err != nil {
			t.Error(err)
		}
		requested = string(text)
		_, _ = c.Write(agenttest.Frames(`{"version":1,"later":"field"}`, webPod))
	})
	got, err := newClient(path).Pod(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	want := &decide.Pod{
		Metadata: decide.Metadata{
			Namespace: "default", Name: "web", UID: "556740d7",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		},
		Spec: decide.PodSpec{Containers: []decide.Container{{Name: "istio-proxy"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pod (-want +got)\n%s", d)
	}
	if want := `{"version":1,"verb":"pod","namespace":"default","name":"web","uid":"556740d7"}`; requested != want {
		t.Errorf("requested %s, want %s", requested, want)
	}
}

func TestErrorKindOfEachAnswer(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer []byte
		kind   source.Kind
		text   string
	}{
		{"a pod", agenttest.Frames(`{"version":1}`, webPod), "", ""},
		{
			"another pod",
			agenttest.Frames(`{"version":1}`, strings.Replace(webPod, `"web"`, `"db"`, 1)),
			source.Unavailable, "about another pod",
		},
		{
			"a pod with another UID",
			agenttest.Frames(`{"version":1}`, strings.Replace(webPod, `556`, `557`, 1)),
			source.Unavailable, "about another pod",
		},
		{
			"the pod does not exist", agenttest.Frames(`{"version":1,"kind":"not-found","error":"none"}`),
			source.NotFound, "pod default/web: node agent: none",
		},
		{
			"another pod has the name",
			agenttest.Frames(`{"version":1,"kind":"replaced","error":"other"}`), source.Replaced,
			"other",
		},
		{
			"the API server denies the agent permission",
			agenttest.Frames(`{"version":1,"kind":"forbidden","error":"no"}`), source.Forbidden,
			"no",
		},
		{
			"an error of an unknown kind",
			agenttest.Frames(`{"version":2,"kind":"later","error":"hm"}`), source.Unavailable, "hm",
		},
		{
			"an error without a kind", agenttest.Frames(`{"version":1,"error":"hm"}`),
			source.Unavailable, "hm",
		},
		{
			"an error with several lines",
			agenttest.Frames(`{"version":1,"error":"a\nb\u001b"}`), source.Unavailable, "a b\ufffd",
		},
		{
			"a later version", agenttest.Frames(`{"version":2}`, webPod), source.Unavailable,
			"protocol version 2",
		},
		{"no version", agenttest.Frames(`{}`, webPod), source.Unavailable, "protocol version 0"},
		{"invalid JSON", agenttest.Frames(`HTTP`), source.Unavailable, "not understood"},
		{
			"a body that is not a pod", agenttest.Frames(`{"version":1}`, `[]`), source.Unavailable,
			"its answer is not a pod",
		},
		{"an empty answer", nil, source.Unavailable, "no answer: unexpected EOF"},
		{
			"an incomplete answer", agenttest.Frames(`{"version":1}`)[:9], source.Unavailable,
			"no answer: unexpected EOF",
		},
		{
			"an incomplete body", agenttest.Frames(`{"version":1}`, webPod)[:60], source.Unavailable,
			"no complete answer: unexpected EOF",
		},
		{
			"an answer that is too long",
			[]byte{0, 1, 0, 0},
			source.Unavailable,
			"a frame of 65536 bytes: too long",
		},
		{
			"a body that is too long", append(agenttest.Frames(`{"version":1}`), 1, 0, 0, 0),
			source.Unavailable, "a frame of 16777216 bytes: too long",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			pod, err := newClient(agenttest.Listen(t,
				agenttest.Reply(t, row.answer))).Pod(t.Context(), web)
			if source.KindOf(err) != row.kind || (pod == nil) != (err != nil) {
				t.Fatalf("pod %v, kind %q, want %q: %v", pod, source.KindOf(err), row.kind, err)
			}
			if err != nil {
				agenttest.CheckText(t, err, row.text)
			}
		})
	}
}

func TestNamespaceAndReady(t *testing.T) {
	client := func(answer []byte) *client.Client {
		return newClient(agenttest.Listen(t, agenttest.Reply(t, answer)))
	}
	namespace, err := client(agenttest.Frames(`{"version":1}`,
		`{"metadata":{"name":"default","labels":{"a":"b"}}}`)).Namespace(t.Context(), "default")
	if err != nil || namespace.Metadata.Labels["a"] != "b" {
		t.Errorf("namespace %v, error %v, want the label a=b", namespace, err)
	}
	_, err = client(agenttest.Frames(`{"version":1}`,
		`{"metadata":{"name":"other"}}`)).Namespace(t.Context(), "default")
	agenttest.CheckText(t, err, "namespace default: node agent: its answer is about another namespace")
	if err := client(agenttest.Frames(`{"version":1}`, ``)).Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
	agenttest.CheckText(t, client(agenttest.Frames(`{"version":1,"error":"hm"}`)).Ready(t.Context()),
		"node agent: hm")
}

func TestMissingAgentIsUnavailable(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: closed, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "none"): "no agent listens",
		closed:                     "no agent listens",
		file:                       "no agent listens",
		filepath.Join(file, "x"):   "not a directory",
		filepath.Join(dir, strings.Repeat("x", 200)): "invalid argument",
	} {
		c := client.New(client.Options{Socket: path})
		_, err := c.Pod(t.Context(), web)
		agenttest.CheckText(t, err, "pod default/web: node agent: socket "+path+": ", text)
		if !source.IsUnavailable(err) {
			t.Errorf("kind %q, want unavailable", source.KindOf(err))
		}
		agenttest.CheckText(t, c.Report(sampleAdd), path)
	}
}

// TestOnlyTheFirstQueryWaitsForAnUnresponsiveAgent checks that only the first query waits for an
// agent that does not answer.
func TestOnlyTheFirstQueryWaitsForAnUnresponsiveAgent(t *testing.T) {
	release, callers := make(chan struct{}), make(chan string, 10)
	path := agenttest.Listen(t, func(c *net.UnixConn) {
		callers <- c.RemoteAddr().String()
		<-release
	})
	const timeout = time.Second // long enough to connect on a busy machine
	c := client.New(client.Options{Socket: path, Timeout: timeout})
	start := time.Now()
	_, err := c.Pod(t.Context(), web)
	agenttest.CheckText(t, err, "pod default/web: node agent: no answer within ")
	if elapsed := time.Since(start); elapsed < timeout || elapsed > 30*time.Second {
		t.Errorf("the query took %v, want about %v", elapsed, timeout)
	}
	_, err = c.Namespace(t.Context(), "default")
	agenttest.CheckText(t, err, "namespace default: node agent: an earlier answer did not arrive in time")
	if !source.IsUnavailable(err) {
		t.Errorf("kind %q, want unavailable", source.KindOf(err))
	}
	close(release)
	// Connections are accepted in order. The test's own connection, which has a name, is the last.
	name := filepath.Join(t.TempDir(), "test")
	last, err := net.DialUnix("unix", &net.UnixAddr{Name: name, Net: "unix"},
		&net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	n := 0
	for <-callers != name {
		n++
	}
	if n != 1 {
		t.Errorf("the client has connected %d times, want once", n)
	}
}

func TestCanceledRequestEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	path := agenttest.Listen(t, func(*net.UnixConn) {
		cancel(errors.New("the runtime has ended"))
		<-release
	})
	_, err := client.New(client.Options{Socket: path, Timeout: time.Hour}).Pod(ctx, web)
	close(release)
	agenttest.CheckText(t, err, "no answer within ")
}

// TestUntrustedSocketIsNotUsed checks that nothing is sent to a listener that does not run as root.
func TestUntrustedSocketIsNotUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the user")
	}
	read := make(chan int, 1)
	path := ""
	asNobody(t, func() {
		path = agenttest.Listen(t, func(c *net.UnixConn) {
			b := make([]byte, 1)
			n, _ := c.Read(b)
			read <- n
		})
	})
	if path == "" {
		t.Fatal("no listener of another user")
	}
	c := client.New(client.Options{Socket: path})
	_, err := c.Pod(t.Context(), web)
	agenttest.CheckText(t, err, fmt.Sprintf("socket %s: the listener runs as uid 65534, want 0", path))
	if !source.IsUnavailable(err) || <-read != 0 {
		t.Errorf("the client has sent data, or the error has kind %q, want unavailable", source.KindOf(err))
	}
	agenttest.CheckText(t, c.Report(sampleAdd), "runs as uid 65534")
}

// asNobody calls f with the effective uid of nobody, on a new thread.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	err := netnstest.OnNewThread(func() error {
		if err := netnstest.ChangeUser(65534); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAPIServerIsRequestedAfterTheAgent checks that the API server is requested only if the agent
// is unavailable.
func TestAPIServerIsRequestedAfterTheAgent(t *testing.T) {
	// A second agent replaces the API server: both implement source.Source.
	apiServer := newClient(agenttest.Listen(t,
		agenttest.Reply(t, agenttest.Frames(`{"version":1}`, webPod))))
	noAgent := client.New(client.Options{Socket: "/nonexistent"})
	if pod, err := source.Fallback(noAgent, apiServer).Pod(t.Context(), web); err != nil ||
		pod.Metadata.Name != "web" {
		t.Errorf("without an agent: pod %v, error %v, want the API server's pod", pod, err)
	}
	withoutPod := newClient(agenttest.Listen(t,
		agenttest.Reply(t, agenttest.Frames(`{"version":1,"kind":"not-found","error":"none"}`))))
	if _, err := source.Fallback(withoutPod, apiServer).Pod(t.Context(), web); !source.IsNotFound(err) {
		t.Errorf("error %v, want the agent's answer that the pod does not exist", err)
	}
}
