package audit_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAPodWithoutAnADDIsExplainedByItsSandbox checks that the creation time of the sandbox
// determines the cause of the missing ADD: either the plugin was not installed yet, or the runtime
// does not call it. A bypass is reported until the plugin is called for another pod.
func TestAPodWithoutAnADDIsExplainedByItsSandbox(t *testing.T) {
	for name, row := range map[string]struct {
		created  time.Duration // relative to the time when the chain became complete
		reported bool          // the plugin has reported its ADD
		words    string
		bypass   bool
	}{
		"the sandbox was created before the installation": {
			-time.Minute, false, "before the agent found the plugin in the node's CNI chain", false,
		},
		"the sandbox was created minutes after the installation": {
			5 * time.Minute, false,
			"without calling the plugin, although the node's CNI chain had been complete since",
			true,
		},
		"the plugin could not store the record": {
			5 * time.Minute, true, "the plugin was called for the pod, but the record of this ADD is missing",
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := time.Now()
				web := meshPod("web")
				var s *fakeNamespace
				var lines *observer.ObservedLogs
				env := startTestEnv(t, nil, func(env *testEnv) {
					lines = recordLog(env)
					env.completeChain(ready)
					env.created = ready.Add(row.created)
					if row.reported {
						env.options.Bypass.NoteSandboxAdd("uid-web", env.created.Add(time.Second))
					}
					s = env.addSandbox(web)
					env.put(web, running)
				})
				if !rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) {
					t.Error("the pod was not repaired")
				}
				if len(env.events) != 1 || !strings.Contains(env.events[0].Message, row.words) {
					t.Errorf("events %v, want one with %q", env.events, row.words)
				}
				// The message is the same for all causes. The reason in the line contains the
				// cause.
				if log := lines.FilterMessage("a pod without redirection is redirected now").All(); len(log) != 1 ||
					!strings.Contains(log[0].ContextMap()["reason"].(string), row.words) {
					t.Errorf("log %v, want one line with %q", lines.All(), row.words)
				}
				cause := map[bool]string{true: "bypass", false: "race"}[row.bypass]
				if got := env.metric("sluice_repairs_total{" + cause + ",repair,success}"); got != 1 {
					t.Errorf("counted %v repairs because of %s, want 1", got, cause)
				}
				b, bypassed := env.options.Bypass.Current()
				if bypassed != row.bypass || bypassed && b.Pod != "shop/web" {
					t.Fatalf("bypassed: %t, want %t: %v", bypassed, row.bypass, b)
				}
				if !row.bypass {
					return
				}
				if got := env.metric("sluice_bypassed_pods_total{}"); got != 1 {
					t.Errorf("counted %v bypassed pods, want 1", got)
				}
				advance(time.Hour) // time and audits alone do not end the bypass, and do not count it again
				if _, bypassed := env.options.Bypass.Current(); !bypassed ||
					env.metric("sluice_bypassed_pods_total{}") != 1 {
					t.Errorf("after an hour: bypassed: %t, counted %v, want true and 1", bypassed,
						env.metric("sluice_bypassed_pods_total{}"))
				}
				if err := env.options.Records.Put(record.Record{
					Key:   record.Key{ContainerID: "c-later", IfName: "eth0"},
					Netns: "/run/netns/later", Outcome: "skip", Reason: "not-injected",
					Pod:  record.Pod{Namespace: "shop", Name: "later", UID: "uid-later"},
					Time: env.created.Add(time.Minute),
				}); err != nil {
					t.Fatal(err)
				}
				env.put(meshPod("other"), running)
				advance(time.Minute)
				if _, bypassed := env.options.Bypass.Current(); bypassed {
					t.Error("the bypass is reported although the plugin was called for a later pod")
				}
			})
		})
	}
}

// TestARecordOfAnEarlierSandboxHidesNoBypass covers a pod whose earlier sandbox has left its
// record, because the runtime did not call the plugin's DEL. If the runtime has created the new
// sandbox without the plugin too, this is a bypass.
func TestARecordOfAnEarlierSandboxHidesNoBypass(t *testing.T) {
	for name, row := range map[string]struct {
		source      sandbox.Source
		containerID string
		bypass      bool
	}{
		"the runtime's cache has another container":  {sandbox.Runtime, "c-new", true},
		"the runtime's cache has the same container": {sandbox.Runtime, "c-uid-web", false},
		"the sandbox was found by its record":        {sandbox.Record, "c-uid-web", false},
		"the container is unknown":                   {sandbox.Proc, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := time.Now()
				web := meshPod("web")
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.completeChain(ready)
					env.created = ready.Add(5 * time.Minute)
					env.source, env.containerID = row.source, row.containerID
					r := env.redirect(web)
					env.record(web, &r)
					env.addSandbox(web)
					env.put(web, running)
				})
				cause := map[bool]string{true: "bypass", false: "drift"}[row.bypass]
				if got := env.metric("sluice_repairs_total{" + cause + ",repair,success}"); got != 1 {
					t.Errorf("counted %v repairs because of %s, want 1", got, cause)
				}
				if _, bypassed := env.options.Bypass.Current(); bypassed != row.bypass {
					t.Errorf("bypassed: %t, want %t", bypassed, row.bypass)
				}
				if env.states() != "1 redirected" {
					t.Errorf("%s, want 1 redirected", env.states())
				}
			})
		})
	}
}

// TestWithoutComparisonsANewSandboxIsABypass checks that a later sandbox that the runtime has
// created without the plugin is redirected and reported even if SLUICE_AUDIT is false.
func TestWithoutComparisonsANewSandboxIsABypass(t *testing.T) {
	for _, row := range []struct {
		name  string
		first func(*testEnv, *decide.Pod) *fakeNamespace // adds the first sandbox
	}{
		{"after an ADD", (*testEnv).addRedirected},
		{"after a repair", func(env *testEnv, p *decide.Pod) *fakeNamespace {
			s := env.addSandbox(p)
			env.put(p, running)
			return s
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := time.Now()
				web := meshPod("web")
				var first *fakeNamespace
				env := startTestEnv(t, map[string]string{"SLUICE_AUDIT": "false"}, func(env *testEnv) {
					env.completeChain(ready)
					env.source, env.containerID = sandbox.Runtime, "c-uid-web"
					env.created = ready.Add(-time.Minute)
					first = row.first(env, web)
				})
				applied := first.applied
				if len(first.rules.Tables) == 0 {
					t.Fatal("the first sandbox has no rules")
				}
				advance(5 * time.Minute)
				env.set(func() { first.rules = rules.Ruleset{} })
				env.put(web, running)
				advance(time.Second)
				if first.applied != applied || env.metric("sluice_bypassed_pods_total{}") != 0 {
					t.Errorf("removed rules of the first sandbox were repaired %d times, %v bypasses; want none",
						first.applied-applied, env.metric("sluice_bypassed_pods_total{}"))
				}
				env.set(func() {
					delete(env.namespaces, env.netnsPaths["uid-web"])
					env.created, env.containerID = time.Now(), "c-new"
				})
				s := env.addSandbox(web)
				env.put(web, running)
				advance(time.Second)
				if got := env.metric("sluice_repairs_total{bypass,repair,success}"); got != 1 ||
					!rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) {
					t.Errorf("counted %v repairs because of a bypass, want 1 and the rules of ADD", got)
				}
				if _, bypassed := env.options.Bypass.Current(); !bypassed {
					t.Error("the bypass is not reported")
				}
			})
		})
	}
}

// TestAPodInAmbientModeWithoutAnADDIsABypass checks that a running pod in ambient mode counts as a
// bypass if the runtime has created its sandbox without the plugin although the chain was complete.
func TestAPodInAmbientModeWithoutAnADDIsABypass(t *testing.T) {
	for name, row := range map[string]struct {
		created time.Duration // relative to the time when the chain became complete
		source  sandbox.Source
		record  bool
		bypass  bool
	}{
		"without a record":             {5 * time.Minute, sandbox.Runtime, false, true},
		"with a record":                {5 * time.Minute, sandbox.Runtime, true, false},
		"before the installation":      {-time.Minute, sandbox.Runtime, false, false},
		"while its ADD may be running": {5 * time.Minute, sandbox.Proc, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := time.Now()
				web := meshPod("web")
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.completeChain(ready)
					if row.record {
						env.record(web, nil)
					}
				})
				env.NoteSandbox(sandbox.Sandbox{
					Pod:         sandbox.Pod{Namespace: "shop", Name: "web", UID: "uid-web"},
					ContainerID: "c-uid-web", Source: row.source, Created: ready.Add(row.created),
				})
				b, bypassed := env.options.Bypass.Current()
				if bypassed != row.bypass || bypassed && b.Pod != "shop/web" {
					t.Errorf("bypassed: %t, want %t: %v", bypassed, row.bypass, b)
				}
				want := map[bool]float64{true: 1}[row.bypass]
				if got := env.metric("sluice_bypassed_pods_total{}"); got != want {
					t.Errorf("counted %v bypassed pods, want %v", got, want)
				}
			})
		})
	}
}
