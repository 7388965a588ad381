package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// flaky is an API server that accepts events only while it is available.
type flaky struct {
	*testEnv
	err error
	of  string // the pod whose events are rejected; all pods if empty
}

func (f *flaky) SendEvent(ctx context.Context, e cluster.Event) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil && (f.of == "" || f.of == e.About.Name) {
		return err
	}
	return f.testEnv.SendEvent(ctx, e)
}

// TestEventsWait checks that events wait for an unavailable API server, and are dropped if it
// rejects them.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, nil)
		f := &flaky{testEnv: w, err: errors.New("away")}
		w.options.Cluster = f
		a, b := w.redirected(meshPod("a")), w.redirected(meshPod("b"))
		w.start()
		settle()
		w.flush(a)
		pass(10 * time.Minute)
		w.set(func() { f.err = nil })
		pass(time.Minute)
		if reported := w.told(); reported != "RedirectRepaired" {
			t.Errorf("told %q", reported)
		}
		w.set(func() { f.err = &cluster.StatusError{Code: 403} })
		w.flush(b)
		w.set(func() { f.err = nil })
		w.flush(a)
		pass(time.Minute)
		if reported := w.told(); reported != "RedirectRepaired" {
			t.Errorf("told %q", reported)
		}
	})
}

// TestEventThatIsAlwaysRejected checks that a webhook that fails for one namespace does not block
// events of others.
func TestEventThatIsAlwaysRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, nil)
		w.options.Cluster = &flaky{testEnv: w, err: &cluster.StatusError{Code: 500}, of: "a"}
		a, b := w.redirected(meshPod("a")), w.redirected(meshPod("b"))
		w.start()
		settle()
		w.flush(a)
		w.flush(b)
		pass(time.Minute)
		if reported := w.told(); reported != "RedirectRepaired" {
			t.Errorf("told %q", reported)
		}
	})
}

// TestHostileNames covers names of tables, which an attacker chooses, with control characters for a
// terminal.
func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.DebugLevel)
		w := node(t, nil, func(w *testEnv) {
			w.options.Log = zap.New(core)
			w.redirected(meshPod("web")).foreign = foreign.Effect{
				Unknown: []string{"table inet x\n2026-11-20 INFO all is well\x1b[2J has a rule"},
			}
		})
		text := w.events[0].Message
		for _, line := range lines.All() {
			text += line.Message
		}
		if w.told() != "RedirectUnknown" || !strings.Contains(text, "all is well") ||
			strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q", text)
		}
	})
}

// TestRepetitionsAreCounted checks that a repeated event is reported every few minutes, with the
// number of repetitions.
func TestRepetitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, nil)
		s := w.redirected(meshPod("web"))
		w.start()
		settle()
		for range 3 {
			w.flush(s)
			pass(time.Second)
		}
		pass(5 * time.Minute)
		w.flush(s)
		pass(time.Second)
		if len(w.events) != 2 || w.events[0].Count != 1 || w.events[1].Count != 3 {
			t.Errorf("told %+v", w.events)
		}
	})
}
