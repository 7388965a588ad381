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

// checkText checks that the text of the error contains each of the texts.
func checkText(t testing.TB, err error, texts ...string) {
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
