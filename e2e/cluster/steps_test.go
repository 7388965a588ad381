package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestReachedTargetsAreReported(t *testing.T) {
	var log bytes.Buffer
	s := newSteps("x", &log)
	left := 2
	err := s.reach(t.Context(), "it is there", func(context.Context) error {
		if left--; left > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(log.String(), "x: ") ||
		!strings.HasSuffix(log.String(), " s  it is there\n") {
		t.Errorf("%v; log %q", err, log.String())
	}
}

func TestUnreachableTargetsReportWhy(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	why, looks := errors.New("still not"), 0
	err := newSteps("x", nil).reach(ctx, "it is there", func(ctx context.Context) error {
		if looks++; looks == 1 {
			return why
		}
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) ||
		!strings.Contains(err.Error(), "it is there") {
		t.Errorf("error %v", err)
	}
}

func TestAKeptClusterSaysHowToReachIt(t *testing.T) {
	var out bytes.Buffer
	c := &Cluster{kubeconfig: "/x/kubeconfig", nodes: nil}
	c.printAccess(&out)
	for _, want := range []string{"export KUBECONFIG=/x/kubeconfig", "kill -INT "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, without %q", out.String(), want)
		}
	}
}
