package audit_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// TestANamespaceThatCannotBeReadIsRetriedRarely checks that each failure to read the rules of a pod
// is counted, and that retries are rare.
func TestANamespaceThatCannotBeReadIsRetriedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.checkErr = errors.New("operation not permitted")
		})
		advance(10 * time.Minute)
		// The first retry follows after a second, and each further one after 15 s.
		if env.states() != "1 unknown" || s.checked > 60 || s.applied > 0 ||
			env.metric("sluice_audits_total{error}") != float64(s.checked) {
			t.Errorf("%s, compared %d times, counted %v; want 1 unknown, at most 60 times, all counted as errors",
				env.states(), s.checked, env.counted)
		}
		env.set(func() { s.checkErr = nil })
		advance(time.Minute)
		if env.states() != "1 redirected" {
			t.Errorf("states: %s, want 1 redirected", env.states())
		}
	})
}

// TestASingleFailureIsRetriedSoon checks that a pod that lost its rules is redirected about a
// second after an audit that could not read its namespace, if the previous audit could.
func TestASingleFailureIsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
		for range 2 { // the second failure follows a success
			env.change(s, func() { s.rules, s.checkErr = rules.Ruleset{}, errors.New("no buffer space available") })
			synctest.Wait()
			if env.states() != "1 unknown" {
				t.Fatalf("states: %s, want 1 unknown", env.states())
			}
			env.set(func() { s.checkErr = nil })
			advance(2 * time.Second)
			if env.states() != "1 redirected" {
				t.Errorf("states: %s, want 1 redirected", env.states())
			}
		}
	})
}

// TestAPodWithUnreadableStateIsUnknown checks that a pod counts as unknown, and is neither repaired
// nor reported, while state that the decision requires cannot be read.
func TestAPodWithUnreadableStateIsUnknown(t *testing.T) {
	failed := errors.New("operation not permitted")
	hasNoRulesFails := func(s *fakeNamespace) { s.hasNoRulesErr = failed }
	istioFails := func(s *fakeNamespace) { s.istioErr = failed }
	addressesFails := func(s *fakeNamespace) { s.addressesErr = failed }
	started := func(env *testEnv) *fakeNamespace { // without the plugin
		s := env.addSandbox(meshPod("web"))
		env.put(meshPod("web"), running)
		return s
	}
	replaced := func(env *testEnv) *fakeNamespace { // the second sandbox started without the plugin
		s := env.addRedirected(meshPod("web"))
		s.rules = rules.Ruleset{}
		env.source, env.containerID = sandbox.Runtime, "c-2"
		return s
	}
	redirected := func(env *testEnv) *fakeNamespace { return env.addRedirected(meshPod("web")) }
	for _, row := range []struct {
		name  string
		pod   func(*testEnv) *fakeNamespace
		audit string // SLUICE_AUDIT
		fail  func(*fakeNamespace)
	}{
		{"whether a pod without a record has rules", started, "true", hasNoRulesFails},
		{"whether a pod without a record has rules, without audit", started, "false", hasNoRulesFails},
		{"whether a second sandbox has rules", replaced, "true", hasNoRulesFails},
		{"whether a second sandbox has rules, without audit", replaced, "false", hasNoRulesFails},
		{"whether a pod without a record has Istio's rules", started, "true", istioFails},
		{"whether a pod without a record has Istio's rules, without audit", started, "false", istioFails},
		{"whether a second sandbox has Istio's rules", replaced, "true", istioFails},
		{"whether a second sandbox has Istio's rules, without audit", replaced, "false", istioFails},
		{"the addresses of a redirected pod", redirected, "true", addressesFails},
		{"the addresses of a pod without a record", started, "true", addressesFails},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				env := startTestEnv(t, map[string]string{"SLUICE_AUDIT": row.audit}, func(env *testEnv) {
					s = row.pod(env)
					row.fail(s)
				})
				advance(10 * time.Minute)
				if reported := env.takeEvents(); env.states() != "1 unknown" || s.applied > 0 || reported != "" {
					t.Errorf("%s, applied %d times, events %q; want 1 unknown, never, no event", env.states(), s.applied, reported)
				}
				env.set(func() { s.hasNoRulesErr, s.istioErr, s.addressesErr = nil, nil, nil })
				advance(time.Minute)
				if env.states() != "1 redirected" {
					t.Errorf("after the error: %s, want 1 redirected", env.states())
				}
			})
		})
	}
}

// TestAPodIsRedirectedOnceItHasAnAddress checks that a pod without an address is not reported, and
// is redirected once it has one.
func TestAPodIsRedirectedOnceItHasAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			s.addresses = nil
			env.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		if reported := env.takeEvents(); reported != "" {
			t.Errorf("before the pod has an address: events %q, want none", reported)
		}
		env.set(func() { s.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")} })
		advance(time.Minute)
		if env.states() != "1 redirected" || s.applied != 1 {
			t.Errorf("%s, applied %d times; want 1 redirected, once", env.states(), s.applied)
		}
	})
}

// TestASandboxWithoutRecordAndAddressIsNotReported checks that a pod whose record and addresses DEL
// has removed is not reported.
func TestASandboxWithoutRecordAndAddressIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.addSandbox(web).addresses = nil
			env.put(web, podcache.PodStatus{Phase: "Running"})
		})
		advance(10 * time.Minute)
		if reported := env.takeEvents(); reported != "" || env.states() != "1 unknown" {
			t.Errorf("%s, events %q; want 1 unknown, no event", env.states(), reported)
		}
	})
}

// TestMissingAddressIsReportedAfterAWhile checks that a pod without an address is reported only if
// it still has none after a while. The number of audits in this time does not matter: while the
// runtime removes a sandbox, events of its rules cause audits.
func TestMissingAddressIsReportedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
		for range 5 {
			env.change(s, func() { s.addresses = nil })
			advance(2 * time.Second)
		}
		if reported := env.takeEvents(); reported != "" || env.states() != "1 unknown" {
			t.Errorf("after 10 s: %s, reported %q; want 1 unknown, no event", env.states(), reported)
		}
		advance(20 * time.Second)
		if reported := env.takeEvents(); reported != "RedirectUnknown" || env.states() != "1 unknown" {
			t.Errorf("after 30 s: %s, reported %q; want 1 unknown, event RedirectUnknown", env.states(), reported)
		}
		env.change(s, func() { s.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")} })
		advance(time.Second)
		env.change(s, func() { s.addresses = nil })
		advance(10 * time.Second)
		if reported := env.takeEvents(); reported != "" {
			t.Errorf("10 s after the address was lost again: reported %q, want no event", reported)
		}
	})
}

// TestPodsWithUnreadableRecordsAreUnknown checks that a redirected pod counts as unknown if its
// record cannot be read, instead of as outside the mesh.
func TestPodsWithUnreadableRecordsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.options.Records = record.In(dir)
			env.addRedirected(meshPod("web"))
			bare := meshPod("bare")
			bare.Metadata.Annotations = nil
			env.put(bare, running)
		})
		if env.states() != "1 redirected" {
			t.Fatalf("states: %s, want 1 redirected", env.states())
		}
		attachments := filepath.Join(dir, "attachments")
		if err := errors.Join(os.RemoveAll(attachments), os.WriteFile(attachments, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		advance(10 * time.Minute)
		if env.states() != "1 unknown" || env.metric("sluice_audits_total{error}") == 0 {
			t.Errorf("%s, counted %v; want 1 unknown", env.states(), env.counted)
		}
	})
}
