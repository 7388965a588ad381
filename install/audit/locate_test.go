package audit_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// TestLocate checks that the location and the desired state of every pod of the node are returned,
// even for pods that are not audited, and even while audits are disabled.
func TestLocate(t *testing.T) {
	optOut := func(p *decide.Pod) {
		p.Metadata.Labels = map[string]string{"sidecar.istio.io/inject": "false"}
	}
	for _, row := range []struct {
		name     string
		env      string
		prepare  func(env *testEnv, p *decide.Pod)
		want     agent.Location // without names
		redirect bool           // the location contains the parameters of the redirection
	}{
		{
			"a pod that ADD has redirected", "", func(env *testEnv, p *decide.Pod) { env.addRedirected(p) },
			agent.Location{
				Decision: "redirect", Reason: "mesh-pod", Backend: "nft", NetNS: "found",
			},
			true,
		},
		{
			"a pod that ADD has redirected, while audits are disabled", "SLUICE_AUDIT=false REPAIR_ENABLED=false", func(
				env *testEnv, p *decide.Pod,
			) {
				env.addRedirected(p)
			},
			agent.Location{
				Decision: "redirect", Reason: "mesh-pod", Backend: "nft", NetNS: "found",
			},
			true,
		},
		{
			"a pod whose sandbox was replaced since its last audit", "", func(env *testEnv, p *decide.Pod) {
				old := env.addRedirected(p)
				env.afterStart = func() {
					env.set(func() { delete(env.namespaces, "/run/netns/"+old.id.String()) })
					env.addSandbox(p)
				}
			},
			agent.Location{
				Decision: "redirect", Reason: "mesh-pod", Backend: "nft", NetNS: "found",
			},
			true,
		},
		{
			"a pod that was repaired", "", func(env *testEnv, p *decide.Pod) {
				env.addSandbox(p)
				env.put(p, running)
			},
			agent.Location{
				Decision: "redirect", Reason: "mesh-pod", Backend: "nft", NetNS: "found",
			},
			true,
		},
		{
			"a pod that started before the plugin and is not repaired",
			"SLUICE_AUDIT=false REPAIR_ENABLED=false",
			func(env *testEnv, p *decide.Pod) { env.addSandbox(p); env.put(p, running) },
			agent.Location{Decision: "redirect", Reason: "mesh-pod", NetNS: "found"},
			true,
		},
		{
			"a pod without a sandbox", "", func(env *testEnv, p *decide.Pod) {
				env.put(p, podcache.PodStatus{Phase: "Pending"})
			},
			agent.Location{Decision: "redirect", Reason: "mesh-pod"},
			true,
		},
		{
			"a pod that is not redirected", "", func(env *testEnv, p *decide.Pod) {
				optOut(p)
				env.addSandbox(p)
				env.put(p, running)
			},
			agent.Location{Decision: "skip", Reason: "opt-out-label", NetNS: "found"},
			false,
		},
		{
			"a pod that ADD has not redirected", "", func(env *testEnv, p *decide.Pod) {
				env.addSandbox(p)
				env.record(p, nil)
				env.put(p, running)
			},
			agent.Location{Decision: "skip", Reason: "not-injected", NetNS: "found"},
			false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				env := startTestEnv(t, environment(row.env), func(env *testEnv) { row.prepare(env, web) })
				if env.afterStart != nil {
					env.afterStart()
				}
				got, err := env.Locate(t.Context(), "shop", "web")
				if err != nil {
					t.Fatal(err)
				}
				if err := got.Validate(); err != nil {
					t.Error(err)
				}
				if got.NetNS != "" && got.NetNS == env.netnsPaths[web.Metadata.UID] {
					got.NetNS = "found"
				}
				row.want.Namespace, row.want.Name, row.want.UID = "shop", "web", "uid-web"
				if diff := cmp.Diff(row.want, got,
					cmpopts.IgnoreFields(agent.Location{}, "Redirect", "Message")); diff != "" {
					t.Errorf("location (-want +got):\n%s", diff)
				}
				delete(web.Metadata.Labels, "sidecar.istio.io/inject")
				if row.redirect &&
					!rules.Equal(rules.MustCompile(env.redirect(web)),
						rules.MustCompile(*got.Redirect)) {
					t.Error("the location has other parameters than ADD")
				}
			})
		})
	}
}

func TestLocateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, wrong := meshPod("web"), meshPod("wrong")
		web.Status = decide.PodStatus{}
		wrong.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "80a"
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.put(web, podcache.PodStatus{Phase: "Pending"})
			env.put(wrong, running)
		})
		if _, err := env.Locate(t.Context(), "shop", "gone"); !source.IsNotFound(err) {
			t.Errorf("a missing pod: error %v, want NotFound", err)
		}
		if _, err := env.Locate(t.Context(), "shop", "web"); !source.IsUnavailable(err) {
			t.Errorf("a pod without addresses: error %v, want Unavailable", err)
		}
		if _, err := env.Locate(t.Context(), "shop", "wrong"); !source.IsUnavailable(err) {
			t.Errorf("a pod with invalid parameters: error %v, want Unavailable", err)
		}
	})
}

// TestOrphanedPodIsLocatedByItsRecords checks that a force-deleted pod is located by its records
// while its sandbox exists, even while audits are disabled, and that errors say what is missing.
func TestOrphanedPodIsLocatedByItsRecords(t *testing.T) {
	web := meshPod("web")
	for _, row := range []struct {
		name     string
		env      string
		ambient  bool
		prepare  func(env *testEnv)
		decision string // of the location; empty for an error
		kind     source.Kind
		text     string
	}{
		{
			"a pod that ADD has redirected", "", false,
			func(env *testEnv) { env.addRedirected(web) },
			"redirect", "",
			"ADD redirected the pod; the API server no longer has the pod, but its sandbox exists",
		},
		{
			"a pod that ADD has redirected, while audits are disabled",
			"SLUICE_AUDIT=false REPAIR_ENABLED=false", false,
			func(env *testEnv) { env.addRedirected(web) },
			"redirect", "", "its sandbox exists",
		},
		{
			"a pod that was repaired", "", false,
			func(env *testEnv) { env.addSandbox(web); env.put(web, running) },
			"redirect", "", "the pod started without the plugin, and was repaired",
		},
		{
			"a pod that ADD has not redirected", "", false,
			func(env *testEnv) { env.addSandbox(web); env.record(web, nil); env.put(web, running) },
			"skip", "", "ADD did not redirect the pod",
		},
		{
			"a pod whose sandbox has ended too", "SLUICE_AUDIT=false REPAIR_ENABLED=false", false,
			func(env *testEnv) { env.removeSandbox(env.addRedirected(web)) },
			"", source.NotFound,
			"the API server no longer has pod shop/web, and its sandbox is not found: file does not exist",
		},
		{
			"a pod without a record", "SLUICE_AUDIT=false REPAIR_ENABLED=false", false,
			func(env *testEnv) { env.addSandbox(web); env.put(web, running) },
			"", source.NotFound,
			"the API server has no pod shop/web on this node, and the agent has no record of a deleted pod with this name",
		},
		{
			"a pod that may be in ambient mode", "", true,
			func(env *testEnv) { env.addSandbox(web); env.record(web, nil); env.put(web, running) },
			"", source.Unavailable,
			"whether the pod is in ambient mode is unknown; examine its network namespace with --netns /run/netns/",
		},
		{
			"a node whose pods are not listed yet", "", false,
			func(env *testEnv) { env.addRedirected(web); env.synced = false },
			"", source.Unavailable, "the agent does not know the node's pods yet",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := startTestEnv(t, environment(row.env), row.prepare, func(env *testEnv) {
					if row.ambient {
						s := decide.DefaultAmbientSettings()
						env.options.Decide = &decide.Settings{Ambient: &s}
					}
				})
				env.forceDelete(web)
				settle()
				got, err := env.Locate(t.Context(), "shop", "web")
				if source.KindOf(err) != row.kind || (err == nil) != (row.decision != "") {
					t.Fatalf("location %+v, kind %q, error %v; want decision %q, kind %q", got,
						source.KindOf(err), err, row.decision, row.kind)
				}
				text := got.Message
				if err != nil {
					text = err.Error()
				} else if err := got.Validate(); err != nil || !got.Orphaned || got.UID != "uid-web" ||
					got.Decision != row.decision || got.NetNS != env.netnsPaths["uid-web"] {
					t.Errorf("location %+v, error %v; want decision %s and the sandbox of an orphaned pod",
						got, err, row.decision)
				}
				if !strings.Contains(text, row.text) {
					t.Errorf("text %q, want %q", text, row.text)
				}
			})
		})
	}
}

// TestLatestOrphanedPodIsLocated checks that the pod with the latest ADD is located if several
// force-deleted pods with its name have sandboxes, and that a pod without a sandbox is ignored.
func TestLatestOrphanedPodIsLocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, nil)
		var sandboxes []*fakeNamespace
		for _, uid := range []string{"uid-1", "uid-2", "uid-3"} {
			web := meshPod("web")
			web.Metadata.UID = uid
			sandboxes = append(sandboxes, env.addRedirected(web))
			r := env.redirect(web)
			if err := env.options.Records.Put(record.Record{
				Key: record.Key{ContainerID: "c-" + uid, IfName: "eth0"}, Netns: env.netnsPaths[uid],
				Pod:  record.Pod{Namespace: "shop", Name: "web", UID: uid},
				Time: time.Now(), Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Backend: compat.BackendNFT,
			}); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
		}
		env.removeSandbox(sandboxes[2])
		env.forceDelete(meshPod("web"))
		settle()
		if l, err := env.Locate(t.Context(), "shop", "web"); err != nil || l.UID != "uid-2" {
			t.Errorf("location %+v, error %v, want uid-2", l, err)
		}
	})
}

// TestAPodThatClaimsAnothersUIDIsNotGivenItsSandbox covers a pod whose annotation claims that it is
// the mirror pod of another pod.
func TestAPodThatClaimsAnothersUIDIsNotGivenItsSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		victim, thief := meshPod("victim"), meshPod("thief")
		thief.Metadata.Annotations["kubernetes.io/config.mirror"] = "uid-victim"
		thief.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "443"
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(victim)
			env.put(thief, running)
		})
		settle()
		if s.applied > 0 || !rules.Equal(rules.MustCompile(env.redirect(victim)), s.rules) {
			t.Error("the rules of the other pod have changed")
		}
		if l, err := env.Locate(t.Context(), "shop", "thief"); err != nil || l.NetNS != "" {
			t.Errorf("the location is %+v, error %v, want no network namespace", l, err)
		}
	})
}

// TestAStaticPodIsRepaired covers a static pod, which has different UIDs in ADD and in the API
// server.
func TestAStaticPodIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static := meshPod("web")
		static.Metadata.UID = "hash"
		mirror := meshPod("web")
		mirror.Metadata.Annotations["kubernetes.io/config.mirror"] = "hash"
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(static)
			env.put(mirror, running)
		})
		env.flush(s)
		if s.applied != 1 || env.states() != "1 redirected" {
			t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
	})
}
