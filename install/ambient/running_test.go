package ambient_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// startEnrolled starts a node with the enrolled running pod web. reply is ztunnel's reply to a
// request; nil acknowledges all requests.
func startEnrolled(t *testing.T, reply func(*zds.Request) string) (*testEnv, *netns.NS, *ztunneltest.Ztunnel) {
	t.Helper()
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web", running("10.0.0.7"))
	env.addSandbox("web", ns)
	env.start()
	z := ztunneltest.Start(t, env.socket, reply)
	// The annotation is set while the pod is still being enrolled.
	rulestest.Eventually(t, "the pod is annotated and enrolled", func() bool {
		return env.annotation("web") == "enabled" && env.Count()[ambient.Enrolled] == 1
	})
	env.mu.Lock()
	env.patches = nil // the pod may have been pending for a moment
	env.mu.Unlock()
	return env, ns, z
}

func TestRunningPodIsEnrolled(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	if !env.hasRules(ns) || z.Pods()["uid-web"] != ns.ID() ||
		!slices.Equal(env.probed("web"), addresses("10.0.0.7")) {
		t.Error("the pod is annotated and not enrolled")
	}
	rulestest.Eventually(t, "the pod counts as enrolled", func() bool {
		n := env.Count()
		return n[ambient.Enrolled] == 1 && n[ambient.Pending] == 0
	})
}

// TestRunningPodIsReportedAsFound checks that the sandbox of a running pod that had no ADD is
// reported, and not the sandbox of a pod that its ADD enrolls.
func TestRunningPodIsReportedAsFound(t *testing.T) {
	env := newTestEnv(t)
	var mu sync.Mutex
	var found []string
	env.options.Found = func(s sandbox.Sandbox) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, s.Pod.Name)
	}
	ns, started := netnstest.New(t), netnstest.New(t)
	env.put("running", running("10.0.0.7"))
	env.addSandbox("running", ns)
	env.put("starting")
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	if _, err := env.add("starting", started); err != nil {
		t.Fatal(err)
	}
	env.addSandbox("starting", started)
	env.put("starting", running("10.0.0.7"))
	rulestest.Eventually(t, "both pods are annotated", func() bool {
		return env.annotation("running") == "enabled" && env.annotation("starting") == "enabled"
	})
	env.stop()
	if !slices.Equal(found, []string{"running"}) {
		t.Errorf("found %q, want only the running pod, once", found)
	}
}

func TestNamespaceLabelDeterminesTheMode(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web", running("10.0.0.7"), func(p *decide.Pod) { p.Metadata.Labels = map[string]string{} })
	env.addSandbox("web", ns)
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "snapshot")
	setMode := func(mode string) {
		env.mu.Lock()
		env.namespaces["shop"] = mode
		env.mu.Unlock()
		env.Changed("shop", "")
	}
	if !hasNoRules(t, ns) {
		t.Error("the pod is enrolled without a label")
	}
	setMode("ambient")
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.annotation("web") == "enabled" })
	if !env.hasRules(ns) {
		t.Error("the pod has no rules")
	}
	setMode("none")
	rulestest.Eventually(t, "the pod has left ambient mode", func() bool { return env.annotation("web") == "" })
	if !hasNoRules(t, ns) || len(z.Pods()) > 0 || env.probed("web") != nil {
		t.Error("the annotation was removed before the pod's rules and addresses")
	}
}

// TestPodLeavesInOrder checks that the rules are removed before ztunnel forgets the pod, and that
// failed steps are retried.
func TestPodLeavesInOrder(t *testing.T) {
	var removals atomic.Int32 // messages that remove the pod; ztunnel refuses the first two
	var ns atomic.Pointer[netns.NS]
	env, podNS, _ := startEnrolled(t, func(r *zds.Request) string {
		if r.GetDel() == nil {
			return ""
		}
		if !hasNoRules(t, ns.Load()) {
			t.Error("ztunnel removes the pod before its rules are removed")
		}
		if removals.Add(1) < 3 {
			return "not now"
		}
		return ""
	})
	ns.Store(podNS)
	env.put("web", labeled(modeLabel, "none"))
	rulestest.Eventually(t, "the pod has left ambient mode", func() bool { return env.annotation("web") == "" })
	if removals.Load() < 3 || env.probed("web") != nil {
		t.Errorf("%d removals, want at least 3; the node's rules allow probes of %v, want of none",
			removals.Load(), env.probed("web"))
	}
	if got := env.patched(); got != "web=none" {
		t.Errorf("patches %s, want web=none", got)
	}
	rulestest.Eventually(t, "the pod is forgotten", func() bool {
		n := env.Count()
		return n[ambient.Enrolled]+n[ambient.Pending] == 0
	})
}

// TestEndedPodIsRemovedFromZtunnel checks that a pod that was deleted, was replaced by a new pod
// with the same name, or has ended, is removed from ztunnel and from the node's rules. The
// annotation of a pod that no longer exists is not changed.
func TestEndedPodIsRemovedFromZtunnel(t *testing.T) {
	for _, name := range []string{
		"deleted", "replaced by a new pod with the same name", "ended", "ended with an invalid annotation",
	} {
		t.Run(name, func(t *testing.T) {
			env, _, z := startEnrolled(t, nil)
			switch name {
			case "deleted":
				env.delete("web")
			case "ended":
				env.put("web", labeled("phase", "Succeeded"))
			case "ended with an invalid annotation":
				env.put("web", annotated("istio.io/reroute-virtual-interfaces", "a/b"), labeled("phase", "Succeeded"))
			default:
				env.put("web", func(p *decide.Pod) {
					p.Metadata.UID, p.Metadata.Annotations = "uid-new", map[string]string{}
					p.Status.PodIP = ""
				})
			}
			z.Wait(t, "del uid-web")
			rulestest.Eventually(t, "the pod's addresses are removed", func() bool { return env.probed("web") == nil })
			if got := env.patched(); !strings.HasPrefix(name, "ended") && got != "" {
				t.Errorf("patches %s, want none", got)
			}
		})
	}
}

// TestDeletedPodIsRemovedOnceZtunnelReplies checks that a pod that is deleted while ztunnel does
// not reply is removed once ztunnel replies, and that other pods are not delayed.
func TestDeletedPodIsRemovedOnceZtunnelReplies(t *testing.T) {
	permitReply := make(chan struct{})
	env, _, z := startEnrolled(t, func(r *zds.Request) string {
		if r.GetDel() != nil {
			<-permitReply
		}
		return ""
	})
	env.delete("web")
	rulestest.Eventually(t, "a message to ztunnel is not acknowledged", func() bool {
		c := env.ztunnels.State().Connections
		return len(c) == 1 && c[0].Unacknowledged != ""
	})
	if n := env.Count(); n[ambient.Enrolled]+n[ambient.Pending] != 1 {
		t.Errorf("counts %v, want one pod until ztunnel replies", n)
	}
	other := env.addSandbox("db", netnstest.New(t))
	env.put("db", running("10.0.0.8"))
	rulestest.Eventually(t, "the pod db has rules", func() bool { return env.hasRules(other) })
	close(permitReply)
	z.Wait(t, "del uid-web")
	rulestest.Eventually(t, "the pod db is enrolled", func() bool { return env.annotation("db") == "enabled" })
	rulestest.Eventually(t, "the pod's addresses are removed", func() bool { return env.probed("web") == nil })
}

// TestDeletedPodsWithOneName checks that one reconciliation makes all deleted pods with a name
// leave ambient mode, although an ADD of one of them still runs and a second one cannot leave, and
// that it logs why.
func TestDeletedPodsWithOneName(t *testing.T) {
	log, lines := observer.New(zap.WarnLevel)
	env := newTestEnv(t)
	env.options.Log = zap.New(log)
	const deleted = 8
	for i := range deleted { // at the start of the agent, their objects cannot be read
		uid := fmt.Sprint("uid-", i)
		env.items[uid] = podcache.Item{Ref: source.Ref{Namespace: "shop", Name: "web", UID: uid}}
	}
	env.podErr = errors.New("the API server is unavailable")
	reconciled, proceed := make(chan struct{}), make(chan struct{})
	var isSecond atomic.Bool
	env.onItem = func() {
		if !isSecond.Swap(true) {
			close(reconciled)
			<-proceed
		}
	}
	// leftIn contains the number of lookups, and thereby the reconciliation, after which each pod
	// left.
	leftIn := map[string]int{}
	env.onRemove = func(uid string) error {
		if uid == "uid-3" {
			return errors.New("no space left on device")
		}
		leftIn[uid] = env.lookups
		return nil
	}
	lock := env.options.RuleLock
	if err := lock.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	<-reconciled
	env.mu.Lock()
	clear(env.items)
	env.podErr = nil
	env.mu.Unlock()
	env.put("web", func(p *decide.Pod) { p.Metadata.UID = "uid-busy" })
	added := make(chan error, 1)
	ns := netnstest.New(t)
	go func() {
		_, err := env.Add(t.Context(), source.Ref{Namespace: "shop", Name: "web", UID: "uid-busy"}, ns,
			addresses("10.0.0.7"))
		added <- err
	}()
	waitForStack(t, "rulelock.(*Lock).AcquireFirst")
	env.delete("web")
	close(proceed)
	rulestest.Eventually(t, "all pods leave except the one that cannot", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(leftIn) == deleted-1
	})
	lock.Release()
	if err := <-added; err != nil {
		t.Error(err)
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	for uid, n := range leftIn {
		if n != leftIn["uid-0"] && uid != "uid-busy" {
			t.Errorf("the pods leave in several reconciliations: %v", leftIn)
			break
		}
	}
	if lines.FilterMessage("a pod cannot leave ambient mode yet").Len() == 0 {
		t.Error("the log does not say that a pod cannot leave")
	}
}

func TestAnnotationsOfARunningPodChangeItsRules(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	env.put("web", annotated("ambient.istio.io/dns-capture", "false"))
	withoutDNS := func(a *rules.Ambient) { a.DNS = false }
	rulestest.Eventually(t, "the rules change", func() bool { return env.hasRules(ns, withoutDNS) })
	env.put("web", annotated("istio.io/reroute-virtual-interfaces", "a/b"))
	rulestest.Eventually(t, "an event names the annotation", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return slices.ContainsFunc(env.events, func(e cluster.Event) bool {
			return strings.Contains(e.Message, "istio.io/reroute-virtual-interfaces") &&
				strings.Contains(e.Message, "keeps its earlier rules: ") &&
				e.Warning && e.Reason == "AmbientNotUpdated"
		})
	})
	if !env.hasRules(ns, withoutDNS) || z.Pods()["uid-web"] != ns.ID() || env.annotation("web") != "enabled" {
		t.Error("an invalid annotation has changed an enrolled pod")
	}
}

// A failingBackend is a backend whose Apply fails, with the outcome, while fails is set.
type failingBackend struct {
	compat.Backend
	fails   atomic.Bool
	outcome nft.Outcome
}

func (b *failingBackend) Apply(
	ns *netns.NS, rs rules.Ruleset, prev compat.Snapshot,
) (compat.Result, error) {
	if b.fails.Load() {
		return compat.Result{Result: nft.Result{Outcome: b.outcome}},
			errors.New("no buffer space available")
	}
	return b.Backend.Apply(ns, rs, prev)
}

// failUpdate enrolls a pod, makes a change of its rules fail, and returns the namespace of the pod
// and the event. backend wraps the environment's backend.
func (env *testEnv) failUpdate(backend *failingBackend) (ns *netns.NS, event cluster.Event) {
	t := env.t
	t.Helper()
	backend.Backend, env.options.Backend = env.options.Backend, backend
	ns = env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"))
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	backend.fails.Store(true)
	env.put("web", annotated("ambient.istio.io/dns-capture", "false"))
	rulestest.Eventually(t, "an event reports the pod", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		if len(env.events) > 0 {
			event = env.events[0]
		}
		return len(env.events) > 0
	})
	return ns, event
}

// TestPodStaysEnrolledIfItsRulesCannotBeChanged checks that a pod whose rules cannot be changed
// stays enrolled with its earlier rules, and that the event says so.
func TestPodStaysEnrolledIfItsRulesCannotBeChanged(t *testing.T) {
	env := newTestEnv(t)
	backend := &failingBackend{}
	ns, e := env.failUpdate(backend)
	if e.Reason != "AmbientNotUpdated" || !strings.Contains(e.Message, "no buffer space") {
		t.Errorf("event %+v, want AmbientNotUpdated with the reason", e)
	}
	if !env.hasRules(ns) {
		t.Error("the earlier rules are not in the pod")
	}
	rulestest.Eventually(t, "the pod counts as enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	backend.fails.Store(false)
	rulestest.Eventually(t, "the rules change", func() bool {
		return env.hasRules(ns, func(a *rules.Ambient) { a.DNS = false })
	})
}

// TestPodIsNotEnrolledIfTheResultOfAnUpdateIsUnknown covers an update that may have changed the
// rules of an enrolled pod.
func TestPodIsNotEnrolledIfTheResultOfAnUpdateIsUnknown(t *testing.T) {
	_, e := newTestEnv(t).failUpdate(&failingBackend{outcome: nft.Updated})
	if e.Reason != "AmbientNotEnrolled" {
		t.Errorf("event %+v, want AmbientNotEnrolled, because it is unknown which rules the pod has", e)
	}
}

func TestChangedAddressesAreSetInTheNodesRules(t *testing.T) {
	env, _, _ := startEnrolled(t, nil)
	env.put("web", running("10.0.0.9"))
	rulestest.Eventually(t, "the node's rules have the new addresses", func() bool {
		return slices.Equal(env.probed("web"), addresses("10.0.0.9"))
	})
	if got := env.patched(); got != "" {
		t.Errorf("patches %s, want none", got)
	}
}

// TestZtunnelReceivesAllPodsAfterARestartOfTheAgent checks that ztunnel receives all pods again
// after a restart of the agent, with the network namespaces that were found, and that nothing
// changes.
func TestZtunnelReceivesAllPodsAfterARestartOfTheAgent(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	env.stop()
	z.Stop()
	env.put("lost", running("10.0.0.8"), annotated(redirection, "enabled"))
	env.put("starting")
	env.put("ended", running("10.0.0.10"), labeled("phase", "Failed"))
	env.put("plain", func(p *decide.Pod) { p.Metadata.Labels = nil })
	second := newServer(t, env)
	env.start()
	z = ztunneltest.Start(t, second, nil)
	z.Wait(t, "snapshot")
	messages := z.Messages()
	at := slices.Index(messages, "snapshot")
	slices.Sort(messages[:at])
	if got := strings.Join(messages[:at], ", "); got != "add uid-web, keep uid-lost, keep uid-starting" {
		t.Errorf("before the end of the snapshot: %s, want add uid-web, keep uid-lost, keep uid-starting", got)
	}
	if z.Pods()["uid-web"] != ns.ID() || !env.hasRules(ns) {
		t.Error("the pod is no longer enrolled")
	}
	env.mu.Lock()
	if len(env.replaced) != 3 || !slices.Equal(env.replaced["uid-web"], addresses("10.0.0.7")) ||
		!slices.Equal(env.replaced["uid-lost"], addresses("10.0.0.8")) {
		t.Errorf("the node's rules receive %v, want the addresses of web, lost and starting", env.replaced)
	}
	env.mu.Unlock()
	// The lost pod is found later. Meanwhile it is not reported.
	rulestest.Eventually(t, "the lost pod is pending", func() bool {
		return slices.ContainsFunc(env.Pending(), func(p ambient.PendingPod) bool { return p.Ref.Name == "lost" })
	})
	env.mu.Lock()
	if len(env.events) > 0 {
		t.Errorf("events %+v, want none", env.events)
	}
	env.mu.Unlock()
	lost := env.addSandbox("lost", netnstest.New(t))
	env.Changed("shop", "lost")
	rulestest.Eventually(t, "the lost pod has rules", func() bool { return env.hasRules(lost) })
	z.Wait(t, "add uid-lost")
	if got := env.patched(); got != "" {
		t.Errorf("patches %s, want none", got)
	}
}

// TestNoZtunnelIsServedBeforePodsAreListed checks that no ztunnel is served and no ADD succeeds
// before the pods are listed.
func TestNoZtunnelIsServedBeforePodsAreListed(t *testing.T) {
	env := newTestEnv(t)
	env.options.AddTimeout = 50 * time.Millisecond
	env.synced = false
	env.put("web")
	env.start()
	if _, err := env.add("web", netnstest.New(t)); err == nil || !strings.Contains(err.Error(), "has not listed") {
		t.Errorf("error %v, want that the pods are not listed yet", err)
	}
	if env.ztunnels.State().Restored {
		t.Error("ztunnels are served before the pods are listed")
	}
	env.mu.Lock()
	env.synced = true
	env.mu.Unlock()
	ztunneltest.Start(t, env.socket, nil).Wait(t, "snapshot")
}

// TestAnnotationDoesNotProveThatAPodIsEnrolled checks that an annotation from before a reboot does
// not mean that the pod is enrolled: without ztunnel it is pending.
func TestAnnotationDoesNotProveThatAPodIsEnrolled(t *testing.T) {
	env := newTestEnv(t)
	ns := env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.start()
	rulestest.Eventually(t, "the pod is pending", func() bool { return env.annotation("web") == "pending" })
	if !env.hasRules(ns) {
		t.Error("the pod has no rules")
	}
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
	if got := env.patched(); got != "web=pending web=enabled" {
		t.Errorf("patches %s, want web=pending web=enabled", got)
	}
}

// TestReplacedSandboxIsEnrolled covers a pod that gets a new sandbox without an ADD.
func TestReplacedSandboxIsEnrolled(t *testing.T) {
	env, previous, z := startEnrolled(t, nil)
	ns := env.addSandbox("web", netnstest.New(t))
	env.Changed("", "")
	rulestest.Eventually(t, "the new sandbox has rules", func() bool { return env.hasRules(ns) })
	rulestest.Eventually(t, "ztunnel has the new network namespace", func() bool { return z.Pods()["uid-web"] == ns.ID() })
	if previous.ID() == ns.ID() {
		t.Fatal("the sandbox was not replaced")
	}
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	r := env.rulesOf("uid-web")
	defer r.Release()
	if repaired := r.TakeRepaired(); repaired != nil {
		t.Errorf("rules that never existed are reported as removed: %+v", repaired)
	}
}

// TestReplacedSandboxIsNotEnrolledBeforeItsADD covers a runtime that starts a process of the pod
// before ADD. The pod's status has the address of the earlier sandbox.
func TestReplacedSandboxIsNotEnrolledBeforeItsADD(t *testing.T) {
	env, previous, z := startEnrolled(t, nil)
	ns := env.addSandbox("web", netnstest.New(t))
	env.mu.Lock()
	sb := env.sandboxes["uid-web"]
	sb.Source = sandbox.Proc
	env.sandboxes["uid-web"] = sb
	searches := env.searches
	env.mu.Unlock()
	env.Changed("", "")
	rulestest.Eventually(t, "the pod was reconciled", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return env.searches > searches+1
	})
	if !hasNoRules(t, ns) || z.Pods()["uid-web"] != previous.ID() {
		t.Error("the pod is enrolled before its ADD")
	}
	if _, err := env.add("web", ns); err != nil || !env.hasRules(ns) {
		t.Errorf("ADD returns %v, want no error and the rules", err)
	}
}

// TestSandboxThatIsNotFoundIsReportedAfterAWhile covers two pods whose sandboxes stay missing: a
// running pod is reported, and a pod that is being deleted is not.
func TestSandboxThatIsNotFoundIsReportedAfterAWhile(t *testing.T) {
	env := newTestEnv(t)
	env.options.SandboxTime = 500 * time.Millisecond
	env.put("web", running("10.0.0.7"))
	env.put("deleted", running("10.0.0.8"))
	env.mu.Lock()
	deleted := env.items["shop/deleted"]
	deleted.PodStatus.Deleted = true
	env.items["shop/deleted"] = deleted
	env.mu.Unlock()
	env.start()
	rulestest.Eventually(t, "the pod is reported", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.events) == 1 && env.events[0].About.Name == "web" &&
			strings.Contains(env.events[0].Message, "its network namespace is not found")
	})
	rulestest.Eventually(t, "only the reported pod has an error", func() bool {
		hasError := map[string]bool{}
		for _, p := range env.Pending() {
			hasError[p.Ref.Name] = p.Err != nil
		}
		return maps.Equal(hasError, map[string]bool{"web": true, "deleted": false})
	})
}

// TestPodWithoutZtunnelIsReportedAfterAWhile covers a running pod and an agent to which no ztunnel
// connects.
func TestPodWithoutZtunnelIsReportedAfterAWhile(t *testing.T) {
	env := newTestEnv(t)
	env.options.ZtunnelTime = 500 * time.Millisecond
	env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"))
	begin := time.Now()
	env.start()
	rulestest.Eventually(t, "the pod is reported", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.events) == 1 && strings.Contains(env.events[0].Message, "no ztunnel is connected")
	})
	if elapsed := time.Since(begin); elapsed < env.options.ZtunnelTime {
		t.Errorf("reported after %v, before ZtunnelTime", elapsed)
	}
}

// TestPodWithoutReplyOfZtunnelIsReported covers a running pod and a ztunnel that is connected and
// does not reply: the reconciliation waits until its time limit has passed, and then still reports
// the pod.
func TestPodWithoutReplyOfZtunnelIsReported(t *testing.T) {
	env := newTestEnv(t)
	env.options.ReconcileTime = 500 * time.Millisecond
	env.addSandbox("web", netnstest.New(t))
	permitReply := make(chan struct{})
	ztunnelStarted := make(chan struct{})
	env.onFind = func() { <-ztunnelStarted } // so that no reconciliation finds ztunnel not connected
	env.put("web", running("10.0.0.7"))
	env.start()
	ztunneltest.Start(t, env.socket, func(r *zds.Request) string {
		if r.GetAdd() != nil {
			<-permitReply
		}
		return ""
	})
	close(ztunnelStarted)
	rulestest.Eventually(t, "the pod is annotated and reported", func() bool {
		env.mu.Lock()
		events := len(env.events)
		env.mu.Unlock()
		return env.annotation("web") == "pending" && events == 1
	})
	close(permitReply)
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.annotation("web") == "enabled" })
}

func TestFailedAnnotationIsRetried(t *testing.T) {
	env := newTestEnv(t)
	env.addSandbox("web", netnstest.New(t))
	env.patchErr = errors.New("the API server is unavailable")
	env.put("web", running("10.0.0.7"))
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the patch is attempted several times", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.patches) > 2
	})
	env.mu.Lock()
	env.patchErr = nil
	env.mu.Unlock()
	rulestest.Eventually(t, "the annotation is set", func() bool { return env.annotation("web") == "enabled" })
}

// TestReturnBeforeTheAnnotationIsRemoved covers a pod that returns to ambient mode while it still
// has the annotation. The rules that the node itself has removed are not reported as removed.
func TestReturnBeforeTheAnnotationIsRemoved(t *testing.T) {
	env, ns, _ := startEnrolled(t, nil)
	env.mu.Lock()
	env.patchErr = errors.New("the API server is unavailable")
	env.mu.Unlock()
	env.put("web", labeled(modeLabel, "none"))
	rulestest.Eventually(t, "the pod has left ambient mode, and keeps the annotation", func() bool {
		return hasNoRules(t, ns) && env.patched() != ""
	})
	env.put("web", labeled(modeLabel, "ambient"))
	rulestest.Eventually(t, "the pod is enrolled again", func() bool {
		return env.hasRules(ns) && env.Count()[ambient.Enrolled] == 1
	})
	r := env.rulesOf("uid-web")
	defer r.Release()
	if repaired := r.TakeRepaired(); repaired != nil {
		t.Errorf("rules that the node has removed are reported as removed: %+v", repaired)
	}
}

// TestUninstall checks that Uninstall removes all pods from ambient mode, because without an agent
// a restarted ztunnel would not receive them.
func TestUninstall(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	env.endRun()
	if err := env.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	if !hasNoRules(t, ns) || env.annotation("web") != "" || env.probed("web") != nil || len(z.Pods()) > 0 {
		t.Error("the pod is still in ambient mode")
	}
	env.Close()
}
