package ambient_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// enrolled starts a node with an enrolled running pod.
func enrolled(t *testing.T, reply func(*zds.Request) string) (*testEnv, *netns.NS, *ztunneltest.Ztunnel) {
	t.Helper()
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web", running("10.0.0.7"))
	w.home("web", ns)
	w.start()
	z := ztunneltest.Start(t, w.socket, reply)
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return w.annotation("web") == "enabled" })
	w.mu.Lock()
	w.patches = nil // the pod may have been pending for a moment
	w.mu.Unlock()
	return w, ns, z
}

func TestRunningPodIsEnrolled(t *testing.T) {
	w, ns, z := enrolled(t, nil)
	if !w.has(ns) || z.Pods()["uid-web"] != ns.ID() ||
		!slices.Equal(w.probed("web"), addresses("10.0.0.7")) {
		t.Error("the pod is annotated and not enrolled")
	}
	if n := w.Count(); n[ambient.Enrolled] != 1 || n[ambient.Pending] != 0 {
		t.Errorf("counts %v", n)
	}
}

func TestLabelOfTheNamespace(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web", running("10.0.0.7"), func(p *decide.Pod) { p.Metadata.Labels = map[string]string{} })
	w.home("web", ns)
	w.start()
	z := ztunneltest.Start(t, w.socket, nil)
	z.Wait(t, "snapshot")
	set := func(mode string) {
		w.mu.Lock()
		w.namespaces["shop"] = mode
		w.mu.Unlock()
		w.Changed("shop", "")
	}
	if !bare(t, ns) {
		t.Error("enrolled without a label")
	}
	set("ambient")
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return w.annotation("web") == "enabled" })
	if !w.has(ns) {
		t.Error("no rules")
	}
	set("none")
	rulestest.Eventually(t, "the pod has left ambient mode", func() bool { return w.annotation("web") == "" })
	if !bare(t, ns) || len(z.Pods()) > 0 || w.probed("web") != nil {
		t.Error("the annotation is removed first")
	}
}

// TestPodLeavesInOrder checks that the rules are removed before ztunnel forgets the pod, and that
// failed steps are retried.
func TestPodLeavesInOrder(t *testing.T) {
	var refused atomic.Int32
	var ns atomic.Pointer[netns.NS]
	w, podNS, _ := enrolled(t, func(r *zds.Request) string {
		if r.GetDel() == nil {
			return ""
		}
		if !bare(t, ns.Load()) {
			t.Error("ztunnel removes the pod before its rules are removed")
		}
		if refused.Add(1) < 3 {
			return "not now"
		}
		return ""
	})
	ns.Store(podNS)
	w.put("web", labelled(modeLabel, "none"))
	rulestest.Eventually(t, "the pod has left ambient mode", func() bool { return w.annotation("web") == "" })
	if refused.Load() < 3 || w.probed("web") != nil {
		t.Errorf("%d removals, probes of %v", refused.Load(), w.probed("web"))
	}
	if got := w.patched(); got != "web=none" {
		t.Errorf("patches: %s", got)
	}
	if n := w.Count(); n[ambient.Enrolled]+n[ambient.Pending] != 0 {
		t.Errorf("counts %v", n)
	}
}

// TestDeletedPod checks that a deleted pod is identified by its UID, and that its annotation is not
// changed.
func TestDeletedPod(t *testing.T) {
	for _, name := range []string{"deleted", "replaced by another pod with the name", "ended"} {
		t.Run(name, func(t *testing.T) {
			w, _, z := enrolled(t, nil)
			switch name {
			case "deleted":
				w.delete("web")
			case "ended":
				w.put("web", labelled("phase", "Succeeded"))
			default:
				w.put("web", func(p *decide.Pod) {
					p.Metadata.UID, p.Metadata.Annotations = "uid-new", map[string]string{}
					p.Status.PodIP = ""
				})
			}
			z.Wait(t, "del uid-web")
			rulestest.Eventually(t, "the pod's addresses are removed", func() bool { return w.probed("web") == nil })
			if got := w.patched(); name != "ended" && got != "" {
				t.Errorf("patches: %s", got)
			}
		})
	}
}

// TestPodIsDeletedWhileZtunnelIsStopped checks that a pod that is deleted before its address is
// known, or while ztunnel does not answer, is removed.
func TestPodIsDeletedWhileZtunnelIsStopped(t *testing.T) {
	answer := make(chan struct{})
	w, _, z := enrolled(t, func(r *zds.Request) string {
		if r.GetDel() != nil {
			<-answer
		}
		return ""
	})
	w.delete("web")
	rulestest.Eventually(t, "a message to ztunnel is not acknowledged", func() bool {
		c := w.ztunnels.State().Connections
		return len(c) == 1 && c[0].Unacknowledged != ""
	})
	if n := w.Count(); n[ambient.Enrolled]+n[ambient.Pending] != 1 {
		t.Errorf("counts %v", n)
	}
	// Other pods are not delayed.
	other := w.home("db", netnstest.New(t))
	w.put("db", running("10.0.0.8"))
	rulestest.Eventually(t, "the rules of another pod", func() bool { return w.has(other) })
	close(answer)
	z.Wait(t, "del uid-web")
	rulestest.Eventually(t, "another pod is enrolled", func() bool { return w.annotation("db") == "enabled" })
	rulestest.Eventually(t, "the pod's addresses are removed", func() bool { return w.probed("web") == nil })
}

func TestAnnotationsOfARunningPodChangeItsRules(t *testing.T) {
	w, ns, z := enrolled(t, nil)
	w.put("web", annotated("ambient.istio.io/dns-capture", "false"))
	withoutDNS := func(a *rules.Ambient) { a.DNS = false }
	rulestest.Eventually(t, "the rules change", func() bool { return w.has(ns, withoutDNS) })
	w.put("web", annotated("istio.io/reroute-virtual-interfaces", "a/b"))
	rulestest.Eventually(t, "an event names the annotation", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.events, func(e event) bool {
			return strings.Contains(e.Message, "istio.io/reroute-virtual-interfaces") && e.Warning
		})
	})
	if !w.has(ns, withoutDNS) || z.Pods()["uid-web"] != ns.ID() || w.annotation("web") != "enabled" {
		t.Error("an invalid annotation has changed an enrolled pod")
	}
}

func TestAddressesOfARunningPodChange(t *testing.T) {
	w, _, _ := enrolled(t, nil)
	w.put("web", running("10.0.0.9"))
	rulestest.Eventually(t, "the node's rules have the new addresses", func() bool {
		return slices.Equal(w.probed("web"), addresses("10.0.0.9"))
	})
	if got := w.patched(); got != "" {
		t.Errorf("patches: %s", got)
	}
}

// TestAgentRestarts checks that ztunnel receives all pods again after a restart of the agent, with
// the network namespaces that were found, and that nothing changes.
func TestAgentRestarts(t *testing.T) {
	w, ns, z := enrolled(t, nil)
	w.stop()
	z.Stop()
	w.put("lost", running("10.0.0.8"), annotated(redirection, "enabled"))
	w.put("starting")
	w.put("ended", running("10.0.0.10"), labelled("phase", "Failed"))
	w.put("plain", func(p *decide.Pod) { p.Metadata.Labels = nil })
	second := newServer(t, w)
	w.start()
	z = ztunneltest.Start(t, second, nil)
	z.Wait(t, "snapshot")
	messages := z.Messages()
	at := slices.Index(messages, "snapshot")
	slices.Sort(messages[:at])
	if got := strings.Join(messages[:at], ", "); got != "add uid-web, keep uid-lost, keep uid-starting" {
		t.Errorf("before the end of the snapshot: %s", got)
	}
	if z.Pods()["uid-web"] != ns.ID() || !w.has(ns) {
		t.Error("the pod is no longer enrolled")
	}
	w.mu.Lock()
	if len(w.replaced) != 3 || !slices.Equal(w.replaced["uid-web"], addresses("10.0.0.7")) ||
		!slices.Equal(w.replaced["uid-lost"], addresses("10.0.0.8")) {
		t.Errorf("addresses %v", w.replaced)
	}
	w.mu.Unlock()
	// The lost pod is found later.
	lost := w.home("lost", netnstest.New(t))
	w.Changed("shop", "lost")
	rulestest.Eventually(t, "the lost pod has rules", func() bool { return w.has(lost) })
	z.Wait(t, "add uid-lost")
	if got := w.patched(); got != "" {
		t.Errorf("patches: %s", got)
	}
}

// TestPodsAreNotListedYet checks that no ztunnel is accepted and no ADD succeeds before the pods
// are listed.
func TestPodsAreNotListedYet(t *testing.T) {
	w := newTestEnv(t)
	w.options.AddTime = 50 * time.Millisecond
	w.synced = false
	w.put("web")
	w.start()
	if _, err := w.add("web", netnstest.New(t)); err == nil || !strings.Contains(err.Error(), "has not listed") {
		t.Errorf("error %v", err)
	}
	if w.ztunnels.State().Restored {
		t.Error("a ztunnel was accepted")
	}
	w.mu.Lock()
	w.synced = true
	w.mu.Unlock()
	ztunneltest.Start(t, w.socket, nil).Wait(t, "snapshot")
}

// TestAnnotationOfTheLastBoot checks that an annotation from before a reboot does not mean that the
// pod is enrolled: without ztunnel it is pending.
func TestAnnotationOfTheLastBoot(t *testing.T) {
	w := newTestEnv(t)
	ns := w.home("web", netnstest.New(t))
	w.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	w.start()
	rulestest.Eventually(t, "the pod is pending", func() bool { return w.annotation("web") == "pending" })
	if !w.has(ns) {
		t.Error("no rules")
	}
	ztunneltest.Start(t, w.socket, nil)
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return w.annotation("web") == "enabled" })
	if got := w.patched(); got != "web=pending web=enabled" {
		t.Errorf("patches: %s", got)
	}
}

// TestSandboxIsReplaced covers a new sandbox of a pod without a request of ADD.
func TestSandboxIsReplaced(t *testing.T) {
	w, old, z := enrolled(t, nil)
	ns := w.home("web", netnstest.New(t))
	w.Changed("", "")
	rulestest.Eventually(t, "rules in the new sandbox", func() bool { return w.has(ns) })
	rulestest.Eventually(t, "ztunnel has it", func() bool { return z.Pods()["uid-web"] == ns.ID() })
	if old.ID() == ns.ID() {
		t.Fatal("the sandbox was not replaced")
	}
}

func TestAnnotationIsRepeated(t *testing.T) {
	w := newTestEnv(t)
	w.home("web", netnstest.New(t))
	w.refuse = errors.New("the API server is unavailable")
	w.put("web", running("10.0.0.7"))
	w.start()
	ztunneltest.Start(t, w.socket, nil)
	rulestest.Eventually(t, "several attempts", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.patches) > 2
	})
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	rulestest.Eventually(t, "the annotation is set", func() bool { return w.annotation("web") == "enabled" })
}

// TestUninstall checks that the rules of pods are removed first: without an agent a captured pod
// would have no network.
func TestUninstall(t *testing.T) {
	w, ns, z := enrolled(t, nil)
	stop := w.halt()
	if err := w.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	if !bare(t, ns) || w.annotation("web") != "" || w.probed("web") != nil || len(z.Pods()) > 0 {
		t.Error("the pod is still in ambient mode")
	}
	stop()
}
