package agent_test

import (
	"context"
	"strings"
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
