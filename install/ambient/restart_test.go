package ambient_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func apply(t testing.TB, backend compat.BackendName, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	b, err := compat.Choose(backend)
	if err == nil {
		_, err = b.Apply(ns, rs, compat.Snapshot{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func ambientRules(t testing.TB) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func removeLabels(p *decide.Pod) { p.Metadata.Labels = map[string]string{} }

// TestRulesOfAKilledAgentAreRemoved covers an agent that was killed after installing the rules and
// before setting the annotation, and a label that is removed before the next agent starts. Rules of
// a sidecar stay.
func TestRulesOfAKilledAgentAreRemoved(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			env := newTestEnv(t)
			web, sidecar, late := netnstest.New(t), netnstest.New(t), netnstest.New(t)
			apply(t, backend, web, ambientRules(t))
			apply(t, backend, late, ambientRules(t))
			apply(t, backend, sidecar, rules.MustCompile(rules.DefaultRedirect()))
			env.put("web", running("10.0.0.7"), removeLabels)
			env.addSandbox("web", web)
			env.put("sidecar", running("10.0.0.8"), removeLabels)
			env.addSandbox("sidecar", sidecar)
			env.put("late", running("10.0.0.9"), removeLabels) // its network namespace is not found yet
			env.start()
			rulestest.Eventually(t, "the rules are removed", func() bool { return hasNoRules(t, web) })
			if hasNoRules(t, sidecar) {
				t.Error("the rules of the sidecar are removed")
			}
			env.addSandbox("late", late)
			env.Changed("shop", "late")
			rulestest.Eventually(t, "the rules of the pod that is found late are removed", func() bool { return hasNoRules(t, late) })
			if got := env.patched(); got != "" {
				t.Errorf("patches %s, want none", got)
			}
		})
	}
}

// TestPodLeavesBeforeItsNetworkNamespaceIsFound covers a pod that an earlier agent has enrolled,
// and that leaves ambient mode before the agent finds its network namespace.
func TestPodLeavesBeforeItsNetworkNamespaceIsFound(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	apply(t, compat.BackendNFT, ns, ambientRules(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.start()
	rulestest.Eventually(t, "the pods are listed", env.Restored)
	env.put("web", labeled(modeLabel, "none"))
	rulestest.Eventually(t, "the annotation is removed", func() bool {
		return env.annotation("web") == ""
	})
	env.addSandbox("web", ns)
	env.Changed("shop", "web")
	rulestest.Eventually(t, "the rules are removed", func() bool { return hasNoRules(t, ns) })
}

// TestPodOfUnknownModeIsNotEnrolledAtTheStart covers an agent that cannot read the pods' Namespace
// object when it starts. It does not send the network namespace of a pod that may be outside the
// mesh to ztunnel, and keeps a pod enrolled that an earlier agent has enrolled. Once the Namespace
// object shows that the pods are outside the mesh, ztunnel and the node's rules contain none.
func TestPodOfUnknownModeIsNotEnrolledAtTheStart(t *testing.T) {
	env := newTestEnv(t)
	env.namespaceErr = errors.New("the kubeconfig does not exist")
	env.namespaces["shop"] = "none"
	outside := env.addSandbox("outside", netnstest.New(t))
	env.put("outside", running("10.0.0.7"), removeLabels)
	enrolled := env.addSandbox("enrolled", netnstest.New(t))
	env.put("enrolled", running("10.0.0.8"), removeLabels, annotated(redirection, "enabled"))
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "snapshot")
	messages := slices.DeleteFunc(z.Messages(), func(m string) bool { return m == "snapshot" })
	slices.Sort(messages)
	if got := strings.Join(messages, ", "); got != "add uid-enrolled, keep uid-outside" {
		t.Errorf("ztunnel receives %s, want add uid-enrolled, keep uid-outside", got)
	}
	if p := z.Pods()["uid-enrolled"]; p != enrolled.ID() {
		t.Errorf("ztunnel received the network namespace %v, want %v", p, enrolled.ID())
	}
	env.mu.Lock()
	if len(env.replaced) != 1 || env.replaced["uid-enrolled"] == nil {
		t.Errorf("the node's rules receive %v, want only the addresses of the enrolled pod", env.replaced)
	}
	env.namespaceErr = nil
	env.mu.Unlock()
	env.Changed("", "")
	z.Wait(t, "del uid-outside")
	z.Wait(t, "del uid-enrolled")
	rulestest.Eventually(t, "no pod is in ambient mode", func() bool {
		return env.annotation("enrolled") == "" && env.Count()[ambient.Pending] == 0
	})
	if env.probed("outside") != nil || env.probed("enrolled") != nil || !hasNoRules(t, outside) ||
		len(env.ztunnels.State().Pods) > 0 {
		t.Error("ztunnel or the node's rules still contain a pod, or the pod outside the mesh still has rules")
	}
}

// TestZtunnelKeepsPodsThatCannotBeReadAtTheStart checks that ztunnel keeps a pod that it serves and
// whose object the agent cannot read.
func TestZtunnelKeepsPodsThatCannotBeReadAtTheStart(t *testing.T) {
	env := newTestEnv(t)
	ns := env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.podErr = errors.New("the API server is unavailable")
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "snapshot")
	if got := z.Messages(); !slices.Equal(got, []string{"keep uid-web", "snapshot"}) {
		t.Errorf("ztunnel receives %q, want keep uid-web", got)
	}
	env.mu.Lock()
	env.podErr = nil
	env.mu.Unlock()
	env.Changed("", "")
	z.Wait(t, "add uid-web")
	if z.Pods()["uid-web"] != ns.ID() {
		t.Error("ztunnel received the wrong network namespace")
	}
}

// TestNamespacesAreReadOnceAtTheStart checks that the start of the agent, for which each ADD and
// each ztunnel waits, takes a bounded time while the API server does not answer.
func TestNamespacesAreReadOnceAtTheStart(t *testing.T) {
	env := newTestEnv(t)
	env.options.ModeTime = 50 * time.Millisecond
	env.namespaceErr = context.DeadlineExceeded
	for i := range 5 {
		env.put(fmt.Sprint("web-", i), running("10.0.0.7"), removeLabels)
	}
	reads := 0
	env.onFind = func() { // first called by restore, after it has read the namespaces
		env.mu.Lock()
		defer env.mu.Unlock()
		if reads == 0 {
			reads = env.reads
		}
	}
	env.start()
	rulestest.Eventually(t, "the pods are known", env.Restored)
	env.mu.Lock()
	defer env.mu.Unlock()
	if reads != 1 {
		t.Errorf("the namespace was requested %d times, want once", reads)
	}
}

// TestPodThatIsDeletedAtTheStartIsRemoved covers a pod that is deleted after the agent has listed
// it, and before the agent has sent it to ztunnel.
func TestPodThatIsDeletedAtTheStartIsRemoved(t *testing.T) {
	env := newTestEnv(t)
	env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.onFind = sync.OnceFunc(func() { env.delete("web") })
	env.start()
	rulestest.Eventually(t, "the pods are known", env.Restored)
	rulestest.Eventually(t, "ztunnel and the node's rules do not contain the pod", func() bool {
		return len(env.ztunnels.State().Pods) == 0 && env.probed("web") == nil
	})
}

// TestStaticPodIsFoundAfterARestart covers a static pod, whose UID in the kubelet differs from its
// UID in the API server. The agent finds the sandbox by the UID in the kubelet.
func TestStaticPodIsFoundAfterARestart(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("static", running("10.0.0.7"), annotated("kubernetes.io/config.mirror", "hash"),
		annotated(redirection, "enabled"))
	env.addSandbox("static", ns)
	env.mu.Lock()
	sb := env.sandboxes["uid-static"]
	delete(env.sandboxes, "uid-static")
	sb.Pod = sandbox.Pod{
		Namespace: "shop", Name: "static", UID: "hash", Unproven: true,
		Address: netip.MustParseAddr("10.0.0.7"),
	}
	env.sandboxes["hash"] = sb
	env.mu.Unlock()
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "add uid-static")
	if z.Pods()["uid-static"] != ns.ID() {
		t.Error("ztunnel received the wrong network namespace")
	}
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.hasRules(ns) })
}

// TestRestartedZtunnelReceivesAllPods checks that a ztunnel that starts receives all pods with
// their network namespaces. Nothing else changes, and a pod that starts between two ztunnels waits
// for the second.
func TestRestartedZtunnelReceivesAllPods(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	z.Stop()
	fresh := netnstest.New(t)
	env.put("fresh")
	added := make(chan error, 1)
	go func() {
		_, err := env.add("fresh", fresh)
		added <- err
	}()
	rulestest.Eventually(t, "the pod that starts has rules", func() bool { return env.hasRules(fresh) })
	select {
	case err := <-added:
		t.Fatalf("ADD returned before a ztunnel connected: error %v", err)
	default:
	}
	second := ztunneltest.Start(t, env.socket, nil)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	second.Wait(t, "snapshot")
	if p := second.Pods(); p["uid-web"] != ns.ID() || p["uid-fresh"] != fresh.ID() {
		t.Errorf("ztunnel has %v, want both pods with their network namespaces", p)
	}
	if got := env.patched(); strings.Contains(got, "web=") || !env.hasRules(ns) {
		t.Errorf("patches %s, want none of web, and web must keep its rules", got)
	}
	// During an upgrade two ztunnels have the pods.
	next := ztunneltest.Start(t, env.socket, nil)
	next.Wait(t, "snapshot")
	env.put("web", labeled(modeLabel, "none"))
	second.Wait(t, "del uid-web")
	next.Wait(t, "del uid-web")
	if !slices.Contains(next.Messages(), "add uid-web") {
		t.Errorf("the new ztunnel received %v, want the enrolled pod", next.Messages())
	}
}

// TestRepairsAreKeptForTheAudit checks that TakeRepaired returns a repair that happened during the
// enrollment of a pod, and returns it only once. A pod that starts, and a pod that enters ambient
// mode, have nothing to repair.
func TestRepairsAreKeptForTheAudit(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	// takeRepaired reports whether the pod was repaired since the last call.
	takeRepaired := func(uid string) (has bool) {
		r := env.rulesOf(uid)
		if r == nil {
			t.Fatalf("Rules returns nil for %s", uid)
		}
		defer r.Release()
		return r.TakeRepaired() != nil
	}
	if takeRepaired("uid-web") {
		t.Error("Rules returns a repair of a pod that enters ambient mode")
	}
	env.stop()
	z.Stop()
	if err := removeAllRules(ns); err != nil {
		t.Fatal(err)
	}
	env.socket = newServer(t, env)
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the pod is enrolled again", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	if r := env.rulesOf("uid-web"); r != nil {
		r.Release() // as for a request to locate the pod
	}
	if !takeRepaired("uid-web") || takeRepaired("uid-web") {
		t.Error("the repair is not returned exactly once")
	}
	fresh := netnstest.New(t)
	// The annotation is from before the last boot.
	env.put("fresh", annotated(redirection, "enabled"))
	if _, err := env.add("fresh", fresh); err != nil || takeRepaired("uid-fresh") {
		t.Errorf("ADD: error %v, want none, and no repair of a pod that starts", err)
	}
	if env.rulesOf("uid-unknown") != nil {
		t.Error("Rules returns rules of an unknown pod")
	}
}

func removeAllRules(ns *netns.NS) error {
	for _, b := range compat.Backends() {
		if _, err := b.Remove(ns); err != nil {
			return err
		}
	}
	return nil
}

// TestRepairsOfManyRulesNeedLittleMemory checks that the size of the differences that are kept for
// the audit is limited. A process of the pod determines their number and length, and the agent
// keeps the differences of many pods.
func TestRepairsOfManyRulesNeedLittleMemory(t *testing.T) {
	env, ns, z := startEnrolled(t, nil)
	env.stop()
	z.Stop()
	var addresses []string
	for i := range 1000 {
		addresses = append(addresses, fmt.Sprintf("10.1.%d.%d", i>>8, i&255))
	}
	chain := ambientRules(t).Tables[0].Chains[0].Name
	text := "table inet sluice {\nchain " + chain + " {\nip saddr {" + strings.Join(addresses, ",") + "} accept\nip daddr " +
		strings.Join(addresses, " accept\nip daddr ") + " accept\n}\n}\n"
	istiotest.Run(t, ns, text, "nft", "-f", "-")
	env.socket = newServer(t, env)
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the pod is enrolled again", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	r := env.rulesOf("uid-web")
	if r == nil {
		t.Fatal("Rules returns nil")
	}
	defer r.Release()
	repaired := r.TakeRepaired()
	if repaired == nil || len(repaired.Differences) == 0 {
		t.Fatalf("TakeRepaired returns %+v, want differences", repaired)
	}
	size := 0
	for _, d := range repaired.Differences {
		size += len(d.String())
	}
	if n := len(repaired.Differences); n > 100 || size > 100<<10 {
		t.Errorf("%d differences of %d bytes, want at most 100 of 100 KiB", n, size)
	}
	if repaired.Snapshot.Generation != 0 {
		t.Error("the rules that were read are kept too")
	}
}
