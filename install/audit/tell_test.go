package audit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// flaky is an API server that takes events only when it is there.
type flaky struct {
	*world
	err error
}

func (f *flaky) Tell(ctx context.Context, e cluster.Event) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.world.Tell(ctx, e)
}

// Events wait for an API server that is away, and are dropped if it does not take them.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		f := &flaky{w, errors.New("away")}
		w.options.Cluster = f
		a, b := w.redirected(meshPod("a")), w.redirected(meshPod("b"))
		w.start()
		settle()
		w.flush(a)
		pass(10 * time.Minute)
		w.set(func() { f.err = nil })
		pass(time.Minute)
		if told := w.told(); told != "RedirectRepaired" {
			t.Errorf("told %q", told)
		}
		w.set(func() { f.err = &cluster.StatusError{Code: 403} })
		w.flush(b)
		w.set(func() { f.err = nil })
		w.flush(a)
		pass(time.Minute)
		if told := w.told(); told != "RedirectRepaired" {
			t.Errorf("told %q", told)
		}
	})
}
