package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// ambientTestEnv is a testEnv with one pod, which the agent has enrolled in ambient mode unless
// parameters is nil.
type ambientTestEnv struct {
	*testEnv
	ns         *fakeNamespace     // of the pod
	parameters *rules.Ambient     // of the installed rules
	repaired   *compat.Comparison // the differences that the next call of TakeRepaired returns
	unreleased int                // number of AmbientPods that were not released yet
	ambientErr error              // the error of Options.Ambient
}

func (env *ambientTestEnv) ambient(_ context.Context, uid string) (*audit.AmbientPod, error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.ambientErr != nil {
		return nil, env.ambientErr
	}
	if uid != "uid-web" || env.parameters == nil {
		return nil, nil
	}
	env.unreleased++
	return &audit.AmbientPod{
		Namespace: env.ns, NetNS: env.ns.id, Parameters: *env.parameters, Backend: compat.BackendNFT,
		TakeRepaired: func() (repaired *compat.Comparison) {
			env.set(func() { repaired, env.repaired = env.repaired, nil })
			return repaired
		},
		Release: func() { env.set(func() { env.unreleased-- }) },
	}, nil
}

// compileAmbient returns the rules of the parameters.
func compileAmbient(t testing.TB, a rules.Ambient) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func newAmbientTestEnv(t *testing.T, prepare ...func(*ambientTestEnv)) *ambientTestEnv {
	t.Helper()
	env := &ambientTestEnv{testEnv: newTestEnv(t, nil)}
	settings := decide.DefaultAmbientSettings()
	env.options.Decide = &decide.Settings{Ambient: &settings}
	env.options.Ambient = env.ambient
	p := &decide.Pod{Metadata: decide.Metadata{
		Namespace: "shop", Name: "web", UID: "uid-web",
		Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}, Status: decide.PodStatus{PodIP: "10.0.0.7"}}
	env.ns = env.addSandbox(p)
	a := rules.DefaultAmbient()
	env.parameters, env.ns.rules = &a, compileAmbient(t, a)
	env.put(p, running)
	for _, f := range prepare {
		f(env)
	}
	env.start()
	settle()
	return env
}

func TestAmbientPodIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observer.New(zap.InfoLevel)
		env := newAmbientTestEnv(t, func(env *ambientTestEnv) {
			env.options.Log = zap.New(log)
			env.ns.bypassing = established.Report{Ended: 2, Example: "tcp 10.0.0.7:40000 > 10.9.9.9:80"}
		})
		if got := env.states(); got != "1 redirected" || env.ns.applied != 0 || env.added == 0 {
			t.Fatalf("before a change: %s, %d repairs, %d subscriptions; want 1 redirected", got, env.ns.applied, env.added)
		}
		env.flush(env.ns)
		if len(rules.Compare(compileAmbient(t, *env.parameters), env.ns.rules)) > 0 || env.states() != "1 redirected" {
			t.Errorf("after the removal: rules %s, %s; want the desired rules, 1 redirected", env.ns.rules, env.states())
		}
		for name, n := range map[string]float64{
			"sluice_drifts_total{absent}":                   1,
			"sluice_repairs_total{drift,repair,success}":    1,
			"sluice_bypassing_connections_total{ended}":     2,
			"sluice_repair_duration_seconds_count{drift}":   1,
			"sluice_pods_foreign_rules{bypass}":             0,
			"sluice_bypassing_connections_total{failed}":    0,
			"sluice_repairs_total{drift,repair,error}":      0,
			"sluice_bypassing_connections_total{undecided}": 0,
		} {
			if got := env.metric(name); got != n {
				t.Errorf("%s: %v, want %v", name, got, n)
			}
		}
		if len(env.events) != 1 || env.events[0].Reason != "RedirectRepaired" ||
			!strings.Contains(env.events[0].Message, `process "nft", pid 4711`) ||
			!strings.Contains(env.events[0].Message, "bypass the proxy: 2 ended") {
			t.Errorf("events %+v, want one with the process and the ended connections", env.events)
		}
		repaired := lines.FilterMessage("pod repaired").FilterField(zap.String("mode", "ambient"))
		if repaired.Len() != 1 || env.unreleased != 0 || env.ns.open != 0 {
			t.Errorf("%d log lines of the repair, want 1; %d pods are not released, %d namespaces are open, want none",
				repaired.Len(), env.unreleased, env.ns.open)
		}
	})
}

// TestLocateKeepsTheReportOfARepair checks that an audit reports a repair, and closes the
// connections that bypass ztunnel, although the pod was located between the repair and the audit.
func TestLocateKeepsTheReportOfARepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newAmbientTestEnv(t)
		env.set(func() { env.repaired = &compat.Comparison{Differences: []rules.Difference{{Kind: rules.Missing}}} })
		if _, err := env.Locate(t.Context(), "shop", "web"); err != nil {
			t.Fatal(err)
		}
		ended := env.ns.ended
		env.RulesChanged("uid-web")
		settle()
		if reported := env.takeEvents(); reported != "RedirectRepaired" || env.ns.ended != ended+1 {
			t.Errorf("events %q, connections were ended %d times; want RedirectRepaired, and once", reported,
				env.ns.ended-ended)
		}
	})
}

// TestUnreadableAmbientPodIsUnknown checks that a pod counts as unknown, and cannot be located,
// while the agent cannot read which rules of ambient mode it has installed in the pod.
func TestUnreadableAmbientPodIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newAmbientTestEnv(t)
		env.set(func() { env.ambientErr = errors.New("too many open files") })
		env.RulesChanged("uid-web")
		settle()
		l, err := env.Locate(t.Context(), "shop", "web")
		if env.states() != "1 unknown" || source.KindOf(err) != source.Unavailable {
			t.Errorf("%s, location %+v, error %v; want 1 unknown, an error of the kind unavailable",
				env.states(), l, err)
		}
		env.set(func() { env.ambientErr = nil })
		advance(time.Minute)
		if env.states() != "1 redirected" {
			t.Errorf("after the error: %s, want 1 redirected", env.states())
		}
	})
}

// TestAmbientPodIsAuditedAtTheInterval checks that the audit at the interval finds a difference
// without an event.
func TestAmbientPodIsAuditedAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newAmbientTestEnv(t)
		env.set(func() { env.ns.rules = rules.Ruleset{} })
		advance(env.options.Interval)
		if reported := env.takeEvents(); env.ns.applied != 1 || reported != "RedirectRepaired" {
			t.Errorf("%d repairs, events %q; want 1, RedirectRepaired", env.ns.applied, reported)
		}
	})
}

// TestRulesOfAnAmbientPodAreAuditedUntilItLeaves checks that the rules that the agent reports as
// installed become the desired rules, and that a pod that has left ambient mode is neither audited
// nor repaired.
func TestRulesOfAnAmbientPodAreAuditedUntilItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newAmbientTestEnv(t)
		a := rules.DefaultAmbient()
		a.DNS = false
		env.set(func() { env.parameters, env.ns.rules = &a, compileAmbient(t, a) })
		env.RulesChanged("uid-web")
		synctest.Wait()
		if got := env.states(); got != "1 redirected" || env.ns.applied != 0 {
			t.Errorf("after a change of annotations: %s, %d repairs; want 1 redirected, no repair", got, env.ns.applied)
		}
		env.set(func() { env.parameters, env.ns.rules = nil, rules.Ruleset{} })
		env.RulesChanged("uid-web")
		settle()
		if got, reported := env.states(), env.takeEvents(); got != "" || env.ns.applied != 0 ||
			reported != "" {
			t.Errorf("after the pod has left ambient mode: %q, %d repairs, events %q; "+
				"want no state, no repair and no event", got, env.ns.applied, reported)
		}
		env.RulesChanged("uid-unknown")
		env.flush(env.ns) // an event of a pod that has left
		if env.ns.applied != 0 {
			t.Errorf("a pod that has left ambient mode was repaired %d times, want never", env.ns.applied)
		}
	})
}

// TestRepairsAtEnrollmentAreReported checks that a repair is reported once if the agent made it
// when it enrolled a pod again, even if SLUICE_AUDIT is false. The repair is not reported if the
// pod has Istio's rules, because istio-cni had enrolled it, or if it is unknown whether it has any.
func TestRepairsAtEnrollmentAreReported(t *testing.T) {
	for _, row := range []struct {
		istio   []string
		err     error
		compare bool
		want    string
	}{
		{nil, nil, true, "RedirectRepaired"},
		{nil, nil, false, "RedirectRepaired"},
		{[]string{"table inet istio-ambient"}, nil, true, ""},
		{nil, errors.New("operation not permitted"), true, ""},
	} {
		want, istio := row.want, row.istio
		synctest.Test(t, func(t *testing.T) {
			env := newAmbientTestEnv(t, func(env *ambientTestEnv) {
				env.options.Compare = row.compare
				env.ns.istio, env.ns.istioErr = istio, row.err
				env.repaired = &compat.Comparison{
					Differences: rules.Compare(env.ns.rules, rules.Ruleset{}), Backend: compat.BackendNFT,
				}
			})
			if got := env.takeEvents(); got != want || (env.ns.ended > 0) != (want != "") {
				t.Errorf("Istio's rules %q, error %v, audit %t: events %q, want %q; connections were ended %d times, "+
					"want only with an event", istio, row.err, row.compare, got, want, env.ns.ended)
			}
			if (env.ns.checked > 0) != row.compare {
				t.Errorf("audit %t: the rules were compared %d times", row.compare, env.ns.checked)
			}
			env.RulesChanged("uid-web")
			settle()
			if got := env.takeEvents(); got != "" {
				t.Errorf("Istio's rules %q: second event %q, want none", istio, got)
			}
		})
	}
}

// TestLocationContainsTheInstalledAmbientRules checks that the location contains the installed
// rules, whatever the pod's current annotations are.
func TestLocationContainsTheInstalledAmbientRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newAmbientTestEnv(t, func(env *ambientTestEnv) { env.parameters.DNS = false })
		l, err := env.Locate(context.Background(), "shop", "web")
		if err != nil || l.Decision != "ambient" || l.Ambient == nil || l.Ambient.DNS ||
			l.Backend != "nft" || l.NetNS == "" || env.unreleased != 0 {
			t.Errorf("the location of an enrolled pod: %+v, error %v, want the installed rules; "+
				"%d pods are not released, want none", l, err, env.unreleased)
		}
		env.set(func() { env.parameters = nil })
		if l, err = env.Locate(context.Background(), "shop", "web"); err != nil || l.Decision != "ambient" ||
			!l.Ambient.DNS || l.Backend != "" {
			t.Errorf("the location of a pod that is not enrolled: %+v, error %v, want rules and no backend", l, err)
		}
		a := rules.DefaultAmbient()
		if err := env.options.Records.Put(record.Record{
			Key: record.Key{ContainerID: "c", IfName: "eth0"},
			Pod: record.Pod{Namespace: "shop", Name: "web", UID: "uid-web"}, Outcome: "ambient",
			Reason: "ambient-pod", Ambient: &a, Backend: compat.BackendNFT,
		}); err != nil {
			t.Fatal(err)
		}
		plain := &decide.Pod{Metadata: decide.Metadata{Namespace: "shop", Name: "web", UID: "uid-web"}}
		env.put(plain, running)
		if l, err = env.Locate(context.Background(), "shop", "web"); err != nil || l.Decision != "skip" ||
			!strings.HasPrefix(l.Message, "the pod has left ambient mode: ") {
			t.Errorf("the location after the pod's label was removed: %+v, error %v, want skip", l, err)
		}
	})
}
