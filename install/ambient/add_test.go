package ambient_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestAddEnrolsInOrder checks the order: the rules, ztunnel, the node's rules, and the annotation
// last.
func TestAddEnrolsInOrder(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web")
	w.start()
	z := ztunneltest.Start(t, w.socket, func(r *zds.Request) string {
		if r.GetAdd() == nil {
			return ""
		}
		if !w.has(ns) {
			t.Error("ztunnel receives the pod before its rules are installed")
		}
		if w.probed("web") != nil || w.annotation("web") != "" {
			t.Error("the node's rules or the annotation precede ztunnel's acknowledgement")
		}
		return ""
	})
	e, err := w.add("web", ns)
	if err != nil {
		t.Fatal(err)
	}
	if z.Pods()["uid-web"] != ns.ID() || !w.has(ns) {
		t.Error("the pod is not enrolled at the end of ADD")
	}
	if got := w.probed("web"); !slices.Equal(got, addresses("10.0.0.7")) {
		t.Errorf("probes of %v", got)
	}
	if err := e.Validate(); err != nil || e.Outcome != "created" || e.Rules == 0 || e.Backend != "nft" {
		t.Errorf("%v, %+v", err, e)
	}
	rulestest.Eventually(t, "the annotation", func() bool { return w.annotation("web") == "enabled" })
	if got := w.patched(); got != "web=enabled" {
		t.Errorf("patches: %s", got)
	}
	if n := w.Count(); n[ambient.Enrolled] != 1 {
		t.Errorf("counts %v", n)
	}
	// A repeated ADD changes nothing.
	if e, err = w.add("web", ns); err != nil || e.Outcome != "unchanged" {
		t.Errorf("again: %+v, %v", e, err)
	}
	if got := w.patched(); got != "web=enabled" {
		t.Errorf("patches: %s", got)
	}
}

func TestAddWaitsForZtunnel(t *testing.T) {
	w := newTestEnv(t)
	w.options.ReportWait = 20 * time.Millisecond
	ns := netnstest.New(t)
	w.put("web")
	w.start()
	done := make(chan error, 1)
	go func() {
		_, err := w.add("web", ns)
		done <- err
	}()
	rulestest.Eventually(t, "the rules precede ztunnel", func() bool { return w.has(ns) })
	rulestest.Eventually(t, "an event names what the pod waits for", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.events) == 1 && strings.Contains(w.events[0].Message, "waits for ztunnel: no ztunnel is connected")
	})
	ztunneltest.Start(t, w.socket, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	rulestest.Eventually(t, "the annotation", func() bool { return w.annotation("web") == "enabled" })
}

// TestAddFailsWithoutZtunnel checks that ADD fails closed with the reason, and keeps nothing: the
// runtime removes the sandbox.
func TestAddFailsWithoutZtunnel(t *testing.T) {
	w := newTestEnv(t)
	w.options.AddTime = 200 * time.Millisecond
	w.put("web")
	w.start()
	descriptors := 0
	for i := range 4 {
		if i == 1 { // the first iteration opens descriptors that are kept
			descriptors = count(t)
		}
		ns := netnstest.New(t)
		_, err := w.add("web", ns)
		if source.KindOf(err) != agent.KindZtunnel || !strings.Contains(err.Error(), "no ztunnel is connected") ||
			!strings.Contains(err.Error(), "waited ") {
			t.Errorf("%q: %v", source.KindOf(err), err)
		}
		_ = ns.Close()
	}
	rulestest.Eventually(t, "the annotation", func() bool { return w.annotation("web") == "pending" })
	if w.probed("web") != nil || len(w.ztunnels.State().Pods) > 0 {
		t.Error("ztunnel or the node's rules still contain a pod that did not start")
	}
	rulestest.Eventually(t, "no descriptor remains open", func() bool { return count(t) <= descriptors })
	ns := netnstest.New(t)
	z := ztunneltest.Start(t, w.socket, nil)
	z.Wait(t, "snapshot")
	if _, err := w.add("web", ns); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the annotation", func() bool { return w.annotation("web") == "enabled" })
}

func count(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAddFailsIfZtunnelRefuses(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web")
	w.start()
	ztunneltest.Start(t, w.socket, func(r *zds.Request) string {
		if r.GetAdd() != nil {
			return "too many open files"
		}
		return ""
	}).Wait(t, "snapshot")
	_, err := w.add("web", ns)
	if source.KindOf(err) != agent.KindZtunnel || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("%q: %v", source.KindOf(err), err)
	}
}

func TestAddFailsIfTheNodesRulesCannotBeWritten(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web")
	w.unwritable = errors.New("no space")
	w.start()
	z := ztunneltest.Start(t, w.socket, nil)
	_, err := w.add("web", ns)
	if source.KindOf(err) != agent.KindHost || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%q: %v", source.KindOf(err), err)
	}
	z.Wait(t, "del uid-web")
}

func TestAddRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*testEnv, *decide.Pod)
		kind   source.Kind
		text   string
	}{
		{
			"a pod that is not in ambient mode", func(_ *testEnv, p *decide.Pod) {
				p.Metadata.Labels = nil
			}, source.Unavailable, "not in ambient mode",
		},
		{
			"a wrong annotation", func(_ *testEnv, p *decide.Pod) {
				p.Metadata.Annotations["istio.io/reroute-virtual-interfaces"] = "a/b"
			}, agent.KindParameters, `istio.io/reroute-virtual-interfaces: "a/b"`,
		},
		{
			"another pod with the name", func(_ *testEnv, p *decide.Pod) { p.Metadata.UID = "other" },
			source.Replaced, "another pod",
		},
		{"unknown pod", func(*testEnv, *decide.Pod) {}, source.NotFound, "no such pod"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t)
			ns := netnstest.New(t)
			w.put("web", func(p *decide.Pod) { test.change(w, p) })
			w.start()
			if test.kind == source.NotFound {
				w.delete("web")
			}
			z := ztunneltest.Start(t, w.socket, nil)
			z.Wait(t, "snapshot")
			_, err := w.add("web", ns)
			if source.KindOf(err) != test.kind || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("%q: %v, want %q: %s", source.KindOf(err), err, test.kind, test.text)
			}
			if !bare(t, ns) || len(z.Pods()) > 0 {
				t.Error("the pod was changed")
			}
		})
	}
}

// TestTheNodeIsNoPod covers a pod in the network namespace of the node, whose rules would capture
// the node's traffic.
func TestTheNodeIsNoPod(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.host = ns.ID()
	w.put("web", running("10.0.0.7"))
	w.home("web", ns)
	w.start()
	ztunneltest.Start(t, w.socket, nil)
	if _, err := w.add("web", ns); source.KindOf(err) != agent.KindRules {
		t.Errorf("%q: %v", source.KindOf(err), err)
	}
	rulestest.Eventually(t, "an event", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.events) > 0
	})
	if !bare(t, ns) {
		t.Error("rules were installed in the node's network namespace")
	}
}

// TestManyAdds starts as many pods at once as a large node has.
func TestManyAdds(t *testing.T) {
	w := newTestEnv(t)
	w.options.AddTime = time.Minute // for the race detector
	const pods = 330
	namespaces := make([]*netns.NS, pods)
	for i := range pods {
		w.put(fmt.Sprintf("web-%d", i))
		namespaces[i] = netnstest.New(t)
	}
	w.start()
	var group sync.WaitGroup
	failed := make(chan error, pods)
	start := time.Now()
	for i, ns := range namespaces {
		group.Go(func() {
			if _, err := w.add(fmt.Sprintf("web-%d", i), ns); err != nil {
				failed <- err
			}
		})
	}
	z := ztunneltest.Start(t, w.socket, nil)
	group.Wait()
	t.Logf("%d pods in %v", pods, time.Since(start))
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if n := len(z.Pods()); n != pods {
		t.Errorf("ztunnel has %d pods", n)
	}
	rulestest.Eventually(t, "all annotations", func() bool {
		n := w.Count()
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.patches) >= pods && n[ambient.Enrolled] == pods
	})
}

// TestAddUsesAnnotations checks that the node's settings and the pod's annotations determine the
// rules.
func TestAddUsesAnnotations(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("web", annotated("ambient.istio.io/dns-capture", "false"),
		annotated("ambient.istio.io/bypass-inbound-capture", "maybe"))
	w.start()
	ztunneltest.Start(t, w.socket, nil)
	e, err := w.add("web", ns)
	if err != nil || !w.has(ns, func(a *rules.Ambient) { a.DNS = false }) || e.Ambient.DNS {
		t.Errorf("%v, %+v", err, e)
	}
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], `"maybe" is not true or false`) {
		t.Errorf("notes %q", e.Notes)
	}
}
