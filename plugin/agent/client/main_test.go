package client_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

// webPod is the body of the agent's answer about the pod default/web.
const webPod = `{"metadata":{"namespace":"default","name":"web","uid":"556740d7","annotations":{"sidecar.istio.io/status":"{}"}},` +
	`"spec":{"containers":[{"name":"istio-proxy"}]}}`

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
