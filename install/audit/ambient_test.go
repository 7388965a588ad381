package audit_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// ambientTestEnv is a testEnv with one pod, which the agent has enrolled in ambient mode unless
// parameters is nil.
type ambientTestEnv struct {
	*testEnv
	pod        *space
	parameters *rules.Ambient
	repaired   *compat.Comparison
	held       int
}

func (w *ambientTestEnv) ambient(uid string) *audit.AmbientPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid != "uid-web" || w.parameters == nil {
		return nil
	}
	w.held++
	p := &audit.AmbientPod{
		Namespace: w.pod, NetNS: w.pod.id, Parameters: *w.parameters, Backend: compat.BackendNFT,
		Repaired: w.repaired, Release: func() { w.set(func() { w.held-- }) },
	}
	w.repaired = nil
	return p
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
	w := &ambientTestEnv{testEnv: newTestEnv(t, nil)}
	settings := decide.DefaultAmbientSettings()
	w.options.Decide = &decide.Settings{Ambient: &settings}
	w.options.Ambient = w.ambient
	p := &decide.Pod{Metadata: decide.Metadata{
		Namespace: "shop", Name: "web", UID: "uid-web",
		Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}, Status: decide.PodStatus{PodIP: "10.0.0.7"}}
	w.pod = w.home(p)
	a := rules.DefaultAmbient()
	w.parameters, w.pod.has = &a, compileAmbient(t, a)
	w.put(p, running)
	for _, f := range prepare {
		f(w)
	}
	w.start()
	settle()
	return w
}

func TestAmbientPodIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observer.New(zap.InfoLevel)
		w := newAmbientTestEnv(t, func(w *ambientTestEnv) {
			w.options.Log = zap.New(log)
			w.pod.bypassing = established.Report{Ended: 2, Example: "tcp 10.0.0.7:40000 > 10.9.9.9:80"}
		})
		if got := w.states(); got != "1 redirected" || w.pod.applied != 0 || w.added == 0 {
			t.Fatalf("%s, %d repairs, %d subscriptions", got, w.pod.applied, w.added)
		}
		w.flush(w.pod)
		if len(rules.Compare(compileAmbient(t, *w.parameters), w.pod.has)) > 0 || w.states() != "1 redirected" {
			t.Errorf("not repaired: %s", w.states())
		}
		for name, n := range map[string]float64{
			"sluice_drifts_total{absent}":                   1,
			"sluice_repairs_total{drift,repair,success}":    1,
			"sluice_bypassing_connections_total{ended}":     2,
			"sluice_repair_duration_seconds_count{drift}":   1,
			"sluice_pods_foreign_rules{bypass}":             0,
			"sluice_bypassing_connections_total{failed}":    0,
			"sluice_repairs_total{drift,repair,failure}":    0,
			"sluice_bypassing_connections_total{undecided}": 0,
		} {
			if got := w.metric(name); got != n {
				t.Errorf("%s: %v, want %v", name, got, n)
			}
		}
		if len(w.events) != 1 || w.events[0].Reason != "RedirectRepaired" ||
			!strings.Contains(w.events[0].Message, `process "nft", pid 4711`) ||
			!strings.Contains(w.events[0].Message, "2 were ended") {
			t.Errorf("events %+v", w.events)
		}
		repaired := lines.FilterMessage("pod repaired").FilterField(zap.String("mode", "ambient"))
		if repaired.Len() != 1 || w.held != 0 || w.pod.open != 0 {
			t.Errorf("%d log lines, %d held, %d open", repaired.Len(), w.held, w.pod.open)
		}
	})
}

// TestAmbientPodIsAuditedAtTheInterval checks that the audit at the interval finds a difference
// without an event.
func TestAmbientPodIsAuditedAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAmbientTestEnv(t)
		w.set(func() { w.pod.has = rules.Ruleset{} })
		pass(w.options.Interval)
		if w.pod.applied != 1 || w.told() != "RedirectRepaired" {
			t.Errorf("%d repairs", w.pod.applied)
		}
	})
}

// TestAmbientPodChangesAndLeaves checks that the desired rules are those that the agent has
// installed, from the time of its report on.
func TestAmbientPodChangesAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAmbientTestEnv(t)
		a := rules.DefaultAmbient()
		a.DNS = false
		w.set(func() { w.parameters, w.pod.has = &a, compileAmbient(t, a) })
		w.RulesChanged("uid-web")
		synctest.Wait()
		if got := w.states(); got != "1 redirected" || w.pod.applied != 0 {
			t.Errorf("after a change of annotations: %s, %d repairs", got, w.pod.applied)
		}
		w.set(func() { w.parameters, w.pod.has = nil, rules.Ruleset{} })
		w.RulesChanged("uid-web")
		settle()
		if got := w.states(); got != "" || w.pod.applied != 0 || w.told() != "" {
			t.Errorf("after it left: %q, %d repairs", got, w.pod.applied)
		}
		w.RulesChanged("uid-unknown")
		w.flush(w.pod) // an event of a pod that has left
		if w.pod.applied != 0 {
			t.Error("a pod that left is redirected")
		}
	})
}

// TestRepairsAtEnrolmentAreReported checks that repairs during another enrolment of a pod are
// reported once. A pod with Istio's rules comes from istio-cni.
func TestRepairsAtEnrolmentAreReported(t *testing.T) {
	for name, istio := range map[string][]string{"RedirectRepaired": nil, "": {"table inet istio-ambient"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newAmbientTestEnv(t, func(w *ambientTestEnv) {
				w.pod.istio = istio
				w.repaired = &compat.Comparison{
					Differences: rules.Compare(w.pod.has, rules.Ruleset{}), Backend: compat.BackendNFT,
				}
			})
			if got := w.told(); got != name || (w.pod.ended > 0) != (name != "") {
				t.Errorf("events %q, connections were ended %d times", got, w.pod.ended)
			}
			w.RulesChanged("uid-web")
			settle()
			if got := w.told(); got != "" {
				t.Errorf("again: %q", got)
			}
		})
	}
}

// TestLocationOfAmbientPod checks that the location contains the installed rules, whatever the
// pod's current annotations are.
func TestLocationOfAmbientPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAmbientTestEnv(t, func(w *ambientTestEnv) { w.parameters.DNS = false })
		l, err := w.Locate(context.Background(), "shop", "web")
		if err != nil || l.Decision != "ambient" || l.Ambient == nil || l.Ambient.DNS ||
			l.Backend != "nft" || l.NetNS == "" || w.held != 0 {
			t.Errorf("%+v, %v", l, err)
		}
		w.set(func() { w.parameters = nil })
		if l, err = w.Locate(context.Background(), "shop", "web"); err != nil || l.Decision != "ambient" ||
			!l.Ambient.DNS || l.Backend != "" {
			t.Errorf("before it is enrolled: %+v, %v", l, err)
		}
		a := rules.DefaultAmbient()
		if err := w.options.Records.Put(record.Record{
			Key: record.Key{ContainerID: "c", IfName: "eth0"},
			Pod: record.Pod{Namespace: "shop", Name: "web", UID: "uid-web"}, Outcome: "ambient",
			Reason: "ambient-pod", Ambient: &a, Backend: compat.BackendNFT,
		}); err != nil {
			t.Fatal(err)
		}
		plain := &decide.Pod{Metadata: decide.Metadata{Namespace: "shop", Name: "web", UID: "uid-web"}}
		w.put(plain, running)
		if l, err = w.Locate(context.Background(), "shop", "web"); err != nil || l.Decision != "skip" ||
			!strings.HasPrefix(l.Message, "the pod has left ambient mode: ") {
			t.Errorf("after its label was removed: %+v, %v", l, err)
		}
	})
}
