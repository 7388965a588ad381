package source_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) {
	// Set a proxy as in the environment of a container runtime that pulls images through a proxy.
	// The variables, which net/http reads once, must have no effect.
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		_ = os.Setenv(name, "http://environment.test:3128")
	}
	goleak.VerifyTestMain(m)
}

const webPod = `
metadata:
  name: web
  namespace: default
  uid: 556740d7-0403-486a-8758-b92ee8a08100
  labels: {app: web}
  annotations: {sidecar.istio.io/status: "{}"}
spec:
  containers:
  - name: istio-proxy
    args: [proxy, sidecar]
    securityContext: {runAsUser: 1337}
`

// mirrorPod is the mirror pod of a static pod.
const mirrorPod = `
metadata:
  name: static
  uid: 0e1b6c52-6a7c-4a3f-9a53-3a2f6a7b9a10
  annotations: {kubernetes.io/config.hash: 8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d, kubernetes.io/config.mirror: 8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d}
`

const defaultNamespace = `
kind: Namespace
metadata:
  name: default
  uid: 7e5a0b1c-0c9d-4b8e-8f0a-1b2c3d4e5f60
  labels: {istio-injection: enabled}
`

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7-0403-486a-8758-b92ee8a08100"}

// startInMemory starts a server that has the pods, and a source that uses it. Both end with the
// test.
func startInMemory(t *testing.T) (*apiservertest.Server, *source.APIServer) {
	t.Helper()
	server := apiservertest.StartInMemory(t)
	server.Put(webPod, mirrorPod, defaultNamespace)
	return server, newSource(t, source.Options{Kubeconfig: server.Kubeconfig(), Dial: server.Dial})
}

func newSource(t *testing.T, o source.Options) *source.APIServer {
	t.Helper()
	a := source.NewAPIServer(o)
	t.Cleanup(a.Close)
	return a
}

// outcome is the result of a request.
type outcome struct {
	pod     *decide.Pod
	err     error
	elapsed time.Duration
}

func requestPod(ctx context.Context, s source.Source, ref source.Ref) outcome {
	start := time.Now()
	pod, err := s.Pod(ctx, ref)
	return outcome{pod, err, time.Since(start)}
}

// check compares the outcome with a kind of error and a part of its text; an empty kind means that
// the pod is expected.
func (o outcome) check(t *testing.T, kind source.Kind, text string) {
	t.Helper()
	if got := source.KindOf(o.err); got != kind {
		t.Fatalf("kind %q, want %q: %v", got, kind, o.err)
	}
	if kind == "" {
		if o.pod == nil {
			t.Fatal("neither pod nor error, want a pod")
		}
		return
	}
	if o.pod != nil {
		t.Errorf("the result is a pod and the error %v, want only the error", o.err)
	}
	checkText(t, o.err, text)
}

// checkText checks that the error contains a text and is a line that fits into an event.
func checkText(t *testing.T, err error, text string) {
	t.Helper()
	if !strings.Contains(err.Error(), text) {
		t.Errorf("error %v\nwant %s in it", err, text)
	}
	if len(err.Error()) > 1024 || strings.ContainsFunc(err.Error(), func(c rune) bool {
		return c < ' ' || c == 0x7f
	}) {
		t.Errorf("the error is not a short line of text: %q", err)
	}
}
