package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestWaitUntilLogsTheCondition(t *testing.T) {
	var log bytes.Buffer
	s := newProgress("x", &log)
	remaining := 2
	err := s.waitUntil(t.Context(), "it is ready", func(context.Context) error {
		if remaining--; remaining > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(log.String(), "x: ") ||
		!strings.HasSuffix(log.String(), " s  it is ready\n") {
		t.Errorf("error %v; log %q, want one line with the condition", err, log.String())
	}
}

func TestWaitUntilReturnsTheLastError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	notReady, calls := errors.New("still not"), 0
	err := newProgress("x", nil).waitUntil(ctx, "it is ready", func(ctx context.Context) error {
		if calls++; calls == 1 {
			return notReady
		}
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, notReady) ||
		!strings.Contains(err.Error(), "it is ready") {
		t.Errorf("error %v, want the condition and both errors", err)
	}
}

func TestPrintAccess(t *testing.T) {
	var out bytes.Buffer
	c := &Cluster{kubeconfig: "/x/kubeconfig"}
	c.printAccess(&out)
	for _, want := range []string{"export KUBECONFIG=/x/kubeconfig", "kill -INT "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q, want %q in it", out.String(), want)
		}
	}
}
