package ambient_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// TestAddEnrollsInOrder checks the order: the rules, ztunnel, the node's rules, and the annotation
// last.
func TestAddEnrollsInOrder(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web")
	env.start()
	z := ztunneltest.Start(t, env.socket, func(r *zds.Request) string {
		if r.GetAdd() == nil {
			return ""
		}
		if !env.hasRules(ns) {
			t.Error("ztunnel receives the pod before its rules are installed")
		}
		if env.probed("web") != nil || env.annotation("web") != "" {
			t.Error("the node's rules or the annotation precede ztunnel's acknowledgement")
		}
		return ""
	})
	e, err := env.add("web", ns)
	if err != nil {
		t.Fatal(err)
	}
	if z.Pods()["uid-web"] != ns.ID() || !env.hasRules(ns) {
		t.Error("the pod is not enrolled at the end of ADD")
	}
	if got := env.probed("web"); !slices.Equal(got, addresses("10.0.0.7")) {
		t.Errorf("the node's rules allow probes of %v, want of 10.0.0.7", got)
	}
	if err := e.Validate(); err != nil || e.Outcome != "created" || e.Rules == 0 || e.Backend != "nft" {
		t.Errorf("the enrollment is %+v, want created with nft; Validate returns %v", e, err)
	}
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
	if got := env.patched(); got != "web=enabled" {
		t.Errorf("patches %s, want web=enabled", got)
	}
	// The annotation is set while the pod is still being reconciled.
	rulestest.Eventually(t, "the pod counts as enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	// A repeated ADD changes nothing.
	if e, err = env.add("web", ns); err != nil || e.Outcome != "unchanged" {
		t.Errorf("the repeated ADD returns %+v, %v, want the outcome unchanged", e, err)
	}
	if got := env.patched(); got != "web=enabled" {
		t.Errorf("patches %s, want web=enabled", got)
	}
}

func TestAddWaitsForZtunnel(t *testing.T) {
	env := newTestEnv(t)
	env.options.ReportWait = 20 * time.Millisecond
	ns := netnstest.New(t)
	env.put("web")
	env.start()
	done := make(chan error, 1)
	go func() {
		_, err := env.add("web", ns)
		done <- err
	}()
	rulestest.Eventually(t, "the rules are installed before ztunnel connects", func() bool { return env.hasRules(ns) })
	rulestest.Eventually(t, "an event names what the pod waits for", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.events) == 1 && strings.Contains(env.events[0].Message, "waits for ztunnel: no ztunnel is connected")
	})
	ztunneltest.Start(t, env.socket, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
}

// TestAddFailsWithoutZtunnel checks that ADD fails with the reason, and that the agent then keeps
// neither the pod nor open descriptors: the runtime removes the sandbox.
func TestAddFailsWithoutZtunnel(t *testing.T) {
	env := newTestEnv(t)
	env.options.AddTimeout = 200 * time.Millisecond
	env.put("web")
	env.start()
	descriptors := 0
	for i := range 4 {
		if i == 1 { // the first iteration opens descriptors that stay open
			descriptors = netnstest.Descriptors(t)
		}
		ns := netnstest.New(t)
		_, err := env.add("web", ns)
		if source.KindOf(err) != agent.KindZtunnel || !strings.Contains(err.Error(), "no ztunnel is connected") ||
			!strings.Contains(err.Error(), "waited ") {
			t.Errorf("error of kind %q: %v, want that no ztunnel is connected, and the time waited", source.KindOf(err), err)
		}
		_ = ns.Close()
	}
	rulestest.Eventually(t, "the annotation is pending", func() bool { return env.annotation("web") == "pending" })
	if env.probed("web") != nil || len(env.ztunnels.State().Pods) > 0 {
		t.Error("ztunnel or the node's rules still contain a pod that did not start")
	}
	rulestest.Eventually(t, "no descriptor remains open", func() bool { return netnstest.Descriptors(t) <= descriptors })
	ns := netnstest.New(t)
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "snapshot")
	if _, err := env.add("web", ns); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
}

func TestAddFailsIfZtunnelRefuses(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web")
	env.start()
	ztunneltest.Start(t, env.socket, func(r *zds.Request) string {
		if r.GetAdd() != nil {
			return "too many open files"
		}
		return ""
	}).Wait(t, "snapshot")
	_, err := env.add("web", ns)
	if source.KindOf(err) != agent.KindZtunnel || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("error of kind %q: %v, want the error of ztunnel", source.KindOf(err), err)
	}
}

func TestAddFailsIfTheNodesRulesCannotBeWritten(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web")
	env.hostErr = errors.New("no space")
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	_, err := env.add("web", ns)
	if source.KindOf(err) != agent.KindHost || !strings.Contains(err.Error(), "no space") {
		t.Errorf("error of kind %q: %v, want the error of the node's rules", source.KindOf(err), err)
	}
	z.Wait(t, "del uid-web")
}

func TestAddRefusesPodsThatCannotBeEnrolled(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*decide.Pod)
		kind   source.Kind
		text   string
	}{
		{
			"a pod that is not in ambient mode", func(p *decide.Pod) { p.Metadata.Labels = nil },
			source.Unavailable, "not in ambient mode",
		},
		{
			"an invalid annotation", annotated("istio.io/reroute-virtual-interfaces", "a/b"),
			agent.KindParameters, `istio.io/reroute-virtual-interfaces: "a/b"`,
		},
		{
			"another pod with the name", func(p *decide.Pod) { p.Metadata.UID = "other" },
			source.Replaced, "the pod was replaced",
		},
		{"a pod that does not exist", func(*decide.Pod) {}, source.NotFound, "no such pod"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := newTestEnv(t)
			ns := netnstest.New(t)
			env.put("web", test.change)
			env.start()
			if test.kind == source.NotFound {
				env.delete("web")
			}
			z := ztunneltest.Start(t, env.socket, nil)
			z.Wait(t, "snapshot")
			_, err := env.add("web", ns)
			if source.KindOf(err) != test.kind || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("error of kind %q: %v, want %q: %s", source.KindOf(err), err, test.kind, test.text)
			}
			if !hasNoRules(t, ns) || len(z.Pods()) > 0 {
				t.Error("the pod has rules, or ztunnel received a pod")
			}
		})
	}
}

// TestAddRefusesTheNodesNamespace covers a pod in the network namespace of the node, in which the
// pod's rules would capture the node's traffic.
func TestAddRefusesTheNodesNamespace(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.host = ns.ID()
	env.put("web", running("10.0.0.7"))
	env.addSandbox("web", ns)
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	if _, err := env.add("web", ns); source.KindOf(err) != agent.KindRules {
		t.Errorf("error of kind %q: %v, want the kind %q", source.KindOf(err), err, agent.KindRules)
	}
	rulestest.Eventually(t, "the pod is reported", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.events) > 0
	})
	if !hasNoRules(t, ns) {
		t.Error("rules were installed in the node's network namespace")
	}
}

// TestPodStaysEnrolledUntilTheWatchReportsIt covers a pod whose ADD succeeds before the watch has
// reported the pod: it stays enrolled until the watch or the API server reports that it was
// deleted.
func TestPodStaysEnrolledUntilTheWatchReportsIt(t *testing.T) {
	for _, row := range []struct {
		name    string
		before  bool // the watch still reports an earlier pod with the name
		deleted bool // the watch never reports the pod
	}{
		{"the watch reports the pod later", false, false},
		{"the watch reports an earlier pod with the name", true, false},
		{"the pod is deleted before the watch reports it", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			env := newTestEnv(t)
			ns := netnstest.New(t)
			env.put("web")
			env.mu.Lock()
			if item := env.items["shop/web"]; row.before {
				item.UID = "uid-before"
				env.items["shop/web"] = item
			} else {
				delete(env.items, "shop/web")
			}
			env.mu.Unlock()
			env.start()
			z := ztunneltest.Start(t, env.socket, nil)
			if _, err := env.add("web", ns); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second reconciliation begins after the first one has ended
				env.mu.Lock()
				lookups := env.lookups
				env.mu.Unlock()
				env.Changed("shop", "web")
				rulestest.Eventually(t, "the pod is reconciled", func() bool {
					env.mu.Lock()
					defer env.mu.Unlock()
					return env.lookups > lookups
				})
			}
			if z.Pods()["uid-web"] != ns.ID() || env.probed("web") == nil || env.Count()[ambient.Enrolled] == 0 {
				t.Errorf("the pod is no longer enrolled; ztunnel received %q", z.Messages())
			}
			if !row.deleted {
				env.put("web", running("10.0.0.7"))
				rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
			}
			env.delete("web")
			z.Wait(t, "del uid-web")
			rulestest.Eventually(t, "the pod's addresses are removed", func() bool { return env.probed("web") == nil })
		})
	}
}

// TestAddWaitsForAPodThatLeaves covers an ADD of a pod that is leaving ambient mode. When it has
// left, the ADD enrolls it anew.
func TestAddWaitsForAPodThatLeaves(t *testing.T) {
	permitReply, deleteReceived := make(chan struct{}), make(chan struct{}, 2)
	env, ns, _ := startEnrolled(t, func(r *zds.Request) string {
		if r.GetDel() != nil {
			deleteReceived <- struct{}{}
			<-permitReply
		}
		return ""
	})
	env.put("web", labeled(modeLabel, "none"))
	<-deleteReceived
	env.mu.Lock()
	delete(env.sandboxes, "uid-web") // so that only ADD can enroll the pod
	env.mu.Unlock()
	env.put("web", labeled(modeLabel, "ambient"))
	added := make(chan error, 1)
	go func() {
		_, err := env.add("web", ns)
		added <- err
	}()
	waitForLock(t)
	close(permitReply)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	env.wantKnown("web")
}

// waitForLock waits until a goroutine waits for the lock of a pod.
func waitForLock(t *testing.T) {
	t.Helper()
	waitForStack(t, "semaphore.(*Weighted).Acquire")
}

// waitForStack waits until a goroutine is in the function.
func waitForStack(t *testing.T, function string) {
	t.Helper()
	rulestest.Eventually(t, "a goroutine is in "+function, func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
	})
}

// TestAddedPodStaysKnownWhileItsAnnotationIsRemoved covers an ADD of a pod that has left ambient
// mode, and whose annotation cannot be removed.
func TestAddedPodStaysKnownWhileItsAnnotationIsRemoved(t *testing.T) {
	env, ns, _ := startEnrolled(t, nil)
	added := make(chan error, 1)
	env.mu.Lock()
	env.patchErr = errors.New("the API server is unavailable")
	env.onPatch = sync.OnceFunc(func() {
		env.mu.Lock()
		delete(env.sandboxes, "uid-web") // so that only ADD can enroll the pod
		env.mu.Unlock()
		env.put("web", labeled(modeLabel, "ambient"))
		_, err := env.add("web", ns)
		added <- err
	})
	env.mu.Unlock()
	env.put("web", labeled(modeLabel, "none"))
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	env.mu.Lock()
	env.patchErr = nil
	env.mu.Unlock()
	env.wantKnown("web")
}

// wantKnown checks that the node returns the rules of the pod to the audit, and that the pod is
// removed from ztunnel and the node's rules when it is deleted.
func (env *testEnv) wantKnown(name string) {
	env.t.Helper()
	rulestest.Eventually(env.t, "the pod is reconciled", func() bool { return len(env.Pending()) == 0 })
	if r := env.rulesOf("uid-" + name); r == nil {
		env.t.Error("the node does not know the rules of the pod")
	} else {
		r.Release()
	}
	env.delete(name)
	rulestest.Eventually(env.t, "the pod is removed", func() bool {
		return len(env.ztunnels.State().Pods) == 0 && env.probed(name) == nil
	})
}

// TestManyAddsSucceed adds as many pods concurrently as a large node has.
func TestManyAddsSucceed(t *testing.T) {
	env := newTestEnv(t)
	env.options.AddTimeout = time.Minute // for the race detector
	const pods = 330
	namespaces := make([]*netns.NS, pods)
	for i := range pods {
		env.put(fmt.Sprintf("web-%d", i))
		namespaces[i] = netnstest.New(t)
	}
	env.start()
	var group sync.WaitGroup
	failed := make(chan error, pods)
	start := time.Now()
	for i, ns := range namespaces {
		group.Go(func() {
			if _, err := env.add(fmt.Sprintf("web-%d", i), ns); err != nil {
				failed <- err
			}
		})
	}
	z := ztunneltest.Start(t, env.socket, nil)
	group.Wait()
	t.Logf("%d pods in %v", pods, time.Since(start))
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if n := len(z.Pods()); n != pods {
		t.Errorf("ztunnel has %d pods, want %d", n, pods)
	}
	rulestest.Eventually(t, "all pods are annotated and enrolled", func() bool {
		n := env.Count()
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.patches) >= pods && n[ambient.Enrolled] == pods
	})
}

// TestAddUsesAnnotations checks that the pod's annotations determine the rules, and that an invalid
// annotation is noted.
func TestAddUsesAnnotations(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web", annotated("ambient.istio.io/dns-capture", "false"),
		annotated("ambient.istio.io/bypass-inbound-capture", "maybe"))
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	e, err := env.add("web", ns)
	if err != nil || !env.hasRules(ns, func(a *rules.Ambient) { a.DNS = false }) || e.Ambient.DNS {
		t.Errorf("the enrollment is %+v, error %v; want an enrollment and rules without DNS capture", e, err)
	}
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], `"maybe" is not true or false`) {
		t.Errorf("notes %q, want one note about the invalid annotation", e.Notes)
	}
}

// TestAddTakesPrecedenceOverReadsOfOtherPods checks that an ADD takes precedence over audits and
// reconciliations that wait for RuleLock, and that it does not wait longer than its context
// permits.
func TestAddTakesPrecedenceOverReadsOfOtherPods(t *testing.T) {
	env := newTestEnv(t)
	lock := env.options.RuleLock
	env.put("first")
	env.put("web")
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	if _, err := env.add("first", netnstest.New(t)); err != nil { // waits for the list of pods
		t.Fatal(err)
	}
	if err := lock.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := env.addWithin(ctx, "web", netnstest.New(t))
	if err == nil || !strings.Contains(err.Error(), "rules of other pods") ||
		source.KindOf(err) != agent.KindRules {
		t.Errorf("ADD while rules are read: error %v of kind %q, want one about other pods", err,
			source.KindOf(err))
	}
	const audits = 40
	const readTime = 100 * time.Millisecond // so that the reads of all pods take longer than ADD may
	var group sync.WaitGroup
	var reads atomic.Int32
	for range audits {
		group.Go(func() {
			if err := lock.Acquire(t.Context()); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(readTime)
			reads.Add(1)
			lock.Release()
		})
	}
	lock.Release()
	rulestest.Eventually(t, "the audits wait", func() bool { return reads.Load() >= 2 })
	if _, err = env.add("web", netnstest.New(t)); err != nil || reads.Load() == audits {
		t.Errorf("ADD while audits wait: error %v after %d of %d reads, want no error before the last read", err,
			reads.Load(), audits)
	}
	group.Wait()
}

// TestWaitForTheRulesOfAPodEndsWithTheContext checks that an ADD and a request for the installed
// rules wait no longer for an audit or an enrollment of the pod than their contexts permit. An
// audit of an earlier network namespace does not delay an ADD.
func TestWaitForTheRulesOfAPodEndsWithTheContext(t *testing.T) {
	env, ns, _ := startEnrolled(t, nil)
	// within calls f with a context that ends soon, and fails the test if f does not return then.
	within := func(name string, f func(context.Context) error) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- f(ctx) }()
		select {
		case err := <-result:
			return err
		case <-time.After(10 * time.Second):
			t.Fatalf("%s does not return when its context ends", name)
			return nil
		}
	}
	audited := env.rulesOf("uid-web")
	err := within("ADD", func(ctx context.Context) error {
		_, err := env.addWithin(ctx, "web", ns)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "wait for the end of other work on the pod's rules") {
		t.Errorf("ADD during an audit: error %v, want one about other work on the pod's rules", err)
	}
	replacement := env.addSandbox("web", netnstest.New(t))
	if _, err := env.addWithin(t.Context(), "web", replacement); err != nil {
		t.Errorf("ADD with another network namespace during an audit: %v", err)
	}
	audited.Release()

	rulestest.Eventually(t, "the pod is enrolled", func() bool {
		return env.Count()[ambient.Enrolled] == 1 && env.annotation("web") == "enabled"
	})
	if err := env.options.RuleLock.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	added := make(chan error, 1)
	go func() {
		_, err := env.add("web", replacement)
		added <- err
	}()
	waitForStack(t, "rulelock.(*Lock).AcquireFirst")
	if err := within("Rules", func(ctx context.Context) error {
		r, err := env.Rules(ctx, "uid-web")
		if r != nil {
			r.Release()
		}
		return err
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Rules during an enrollment: error %v, want that of the context", err)
	}
	env.options.RuleLock.Release()
	if err := <-added; err != nil {
		t.Error(err)
	}
}
