package agent_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// locationJSON is the body of an answer with the location of a pod.
const locationJSON = `{"namespace":"default","name":"web","uid":"556740d7","netns":"/proc/7/ns/net","decision":"skip","reason":"not-injected"}`

// requestContext returns a context for one request.
func requestContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
