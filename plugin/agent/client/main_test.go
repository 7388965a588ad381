package client_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = source.Ref{Namespace: "default", Name: "web", UID: "556740d7"}

// webPod is the body of the agent's answer about the pod default/web.
const webPod = `{"metadata":{"namespace":"default","name":"web","uid":"556740d7","annotations":{"sidecar.istio.io/status":"{}"}},` +
	`"spec":{"containers":[{"name":"istio-proxy"}]}}`
