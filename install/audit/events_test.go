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

// rejectingCluster is an API server that rejects events with err, unless err is nil.
type rejectingCluster struct {
	*testEnv
	err error
	pod string // the pod whose events are rejected; all pods if empty
}

func (f *rejectingCluster) SendEvent(ctx context.Context, e cluster.Event) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil && (f.pod == "" || f.pod == e.About.Name) {
		return err
	}
	return f.testEnv.SendEvent(ctx, e)
}

// TestEventsWaitForTheAPIServer checks that events wait for an unavailable API server, and are
// dropped if it rejects them permanently.
func TestEventsWaitForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		f := &rejectingCluster{testEnv: env, err: errors.New("unavailable")}
		env.options.Cluster = f
		a, b := env.addRedirected(meshPod("a")), env.addRedirected(meshPod("b"))
		env.start()
		settle()
		env.flush(a)
		advance(10 * time.Minute)
		env.set(func() { f.err = nil })
		advance(time.Minute)
		if reported := env.takeEvents(); reported != "RedirectRepaired" {
			t.Errorf("after the outage: events %q, want RedirectRepaired once", reported)
		}
		env.set(func() { f.err = &cluster.StatusError{Code: 403} })
		env.flush(b)
		env.set(func() { f.err = nil })
		env.flush(a)
		advance(time.Minute)
		if reported := env.takeEvents(); reported != "RedirectRepaired" {
			t.Errorf("after a rejected event: events %q, want RedirectRepaired once", reported)
		}
	})
}

// TestRejectedEventDoesNotBlockOtherPods checks that a webhook that fails for the events of one pod
// does not block the events of other pods.
func TestRejectedEventDoesNotBlockOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		env.options.Cluster = &rejectingCluster{testEnv: env, err: &cluster.StatusError{Code: 500}, pod: "a"}
		a, b := env.addRedirected(meshPod("a")), env.addRedirected(meshPod("b"))
		env.start()
		settle()
		env.flush(a)
		env.flush(b)
		advance(time.Minute)
		if reported := env.takeEvents(); reported != "RedirectRepaired" {
			t.Errorf("events %q, want RedirectRepaired once", reported)
		}
	})
}

// TestEventsAndLogContainNoControlCharacters checks that events and the log contain no control
// characters of a terminal, even if the name of a table, which an attacker can choose, contains
// some.
func TestEventsAndLogContainNoControlCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.DebugLevel)
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.options.Log = zap.New(core)
			env.addRedirected(meshPod("web")).foreign = foreign.Effect{
				Unknown: []string{"table inet x\n2026-11-20 INFO all is well\x1b[2J has a rule"},
			}
		})
		text := env.events[0].Message
		for _, line := range lines.All() {
			text += line.Message
		}
		reported := env.takeEvents()
		if reported != "RedirectUnknown" || !strings.Contains(text, "all is well") ||
			strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("events %q with the texts %q, want RedirectUnknown with the printable part of the name",
				reported, text)
		}
	})
}

// TestRepetitionsAreCounted checks that a repeated event is reported at most every five minutes,
// with the number of repetitions.
func TestRepetitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		s := env.addRedirected(meshPod("web"))
		env.start()
		settle()
		for range 3 {
			env.flush(s)
			advance(time.Second)
		}
		advance(5 * time.Minute)
		env.flush(s)
		advance(time.Second)
		if len(env.events) != 2 || env.events[0].Count != 1 || env.events[1].Count != 3 {
			t.Errorf("events %+v, want two with the counts 1 and 3", env.events)
		}
	})
}
