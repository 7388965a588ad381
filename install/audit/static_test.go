package audit_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// The tests in this file cover static pods without a record: the plugin was not called for them, or
// the record was lost. The API server has only the mirror pod, whose UID differs. The agent finds
// the sandbox by the static pod's UID, in the runtime's cache or among the processes.

// addStatic adds a static pod without a record, and returns its mirror pod.
func (env *testEnv) addStatic(name string) (s *fakeNamespace, mirror *decide.Pod) {
	static := meshPod(name)
	static.Metadata.UID = "hash-" + name
	s = env.addSandbox(static)
	mirror = mirrorOf(static, "uid-"+name)
	env.put(mirror, running)
	return s, mirror
}

// TestAStaticPodWithoutARecordStaysRepaired checks that a static pod without a record is repaired
// like other pods, and stays repaired when the mirror pod is created again.
func TestAStaticPodWithoutARecordStaysRepaired(t *testing.T) {
	for _, source := range []sandbox.Source{sandbox.Runtime, sandbox.Proc} {
		t.Run(string(source), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				var mirror *decide.Pod
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.source = source
					s, mirror = env.addStatic("web")
				})
				reported := env.takeEvents()
				if !rules.Equal(rules.MustCompile(env.redirect(mirror)), s.rules) ||
					env.states() != "1 redirected" || reported != "RedirectRepaired" {
					t.Errorf("applied %d times, %s, events %q; want the rules of ADD, 1 redirected, "+
						"event RedirectRepaired", s.applied, env.states(), reported)
				}
				env.flush(s)
				if s.applied != 2 || env.states() != "1 redirected" {
					t.Errorf("after a change: applied %d times, %s; want twice, 1 redirected", s.applied, env.states())
				}
				env.forceDelete(mirror)
				advance(time.Second)
				mirror.Metadata.UID = "uid-next"
				env.put(mirror, running)
				advance(time.Second)
				if s.applied != 2 || env.states() != "1 redirected" {
					t.Errorf("with the next mirror pod: applied %d times, %s; want twice, 1 redirected",
						s.applied, env.states())
				}
			})
		})
	}
}

// TestMirrorPodOfABrokenStaticPodIsNotDeleted checks that a static pod without a record is reported
// if repairs are disabled. Its mirror pod is not deleted, because this would not create the static
// pod again, but the mirror pod may be labeled.
func TestMirrorPodOfABrokenStaticPodIsNotDeleted(t *testing.T) {
	for _, row := range []struct{ name, settings, requests string }{
		{"no action is allowed", "REPAIR_REPAIR_PODS=false", ""},
		{"deletion is allowed", "REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true", ""},
		{
			"deletion and labeling are allowed",
			"REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true",
			"label shop/web uid-web cni.istio.io/uninitialized=true",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				env := startTestEnv(t, environment(row.settings), func(env *testEnv) {
					var mirror *decide.Pod
					s, mirror = env.addStatic("web")
					env.put(mirror, broken(time.Now()))
				})
				requests := env.takeRequests()
				if s.applied > 0 || env.states() != "1 unprotected" || requests != row.requests {
					t.Errorf("applied %d times, %s, requests %q; want never, 1 unprotected, requests %q",
						s.applied, env.states(), requests, row.requests)
				}
				if len(env.events) == 0 || env.events[0].Reason != "NotRedirected" ||
					!strings.Contains(env.events[0].Message, "manifest") {
					t.Errorf("events %+v, want NotRedirected with a message about the manifest", env.events)
				}
			})
		})
	}
}

// TestAForgedMirrorPodWithoutARecordIsUnknown covers a pod whose annotation claims that it is the
// mirror pod of a static pod with a different name. The kubelet does not start the forged pod,
// whose status therefore does not contain the address of the static pod.
func TestAForgedMirrorPodWithoutARecordIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, address := range []string{"", "10.0.0.8"} {
			var s *fakeNamespace
			env := startTestEnv(t, nil, func(env *testEnv) {
				env.source = sandbox.Proc
				var mirror *decide.Pod
				s, mirror = env.addStatic("static")
				env.set(func() { clear(env.items) })
				mirror.Metadata.Name, mirror.Status.PodIP = "forged", address
				env.put(mirror, running)
			})
			advance(time.Minute)
			if s.applied > 0 || env.states() != "1 unknown" {
				t.Errorf("applied %d times, %s; want never, 1 unknown", s.applied, env.states())
			}
			env.stop()
		}
	})
}
