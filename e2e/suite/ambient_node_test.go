package suite_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// checkAmbientReboot reboots the node with running pods. An init container sends the pod's first
// request as early as possible; the request must be captured.
func checkAmbientReboot(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	b := tc.run(t, mesh.Pod(ns, "b"))[0]
	s := tc.newService(t, service(b, corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt(mesh.Port)}))
	a := mesh.Pod(ns, "a")
	a.Spec.InitContainers = []corev1.Container{
		mesh.Container("first", "get", "-wait", readyTimeout.String(), url(s.Spec.ClusterIP, 80)),
	}
	pods := []*corev1.Pod{tc.run(t, a)[0], b}
	tc.waitAnnotated(t, "enabled", pods...)

	begin := time.Now()
	if err := tc.node().Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, p := range pods {
		pods[i] = tc.waitRestarted(t, p, begin)
	}
	t.Logf("the pods are ready after %s", time.Since(begin).Round(time.Millisecond))
	if err := tc.containerReport(t, pods[0], "first").Check(throughZtunnel("b")); err != nil {
		t.Errorf("the first request: %v", err)
	}
	for _, name := range []string{agent, mesh.ZtunnelName} {
		eventually(t, readyTimeout, name+" is ready again", func(ctx context.Context) error {
			return tc.checkAgentsReady(ctx, name)
		})
	}
	tc.waitAnnotated(t, "enabled", pods...)
	tc.mustHaveIntactRules(t, pods...)
	tc.mustReachEachOther(t, pods)
	tc.mustHaveUncapturedProbes(t, pods)
}

// mustHaveIntactRules waits until rules check and rules doctor report no problem for the pods and
// their node.
func (tc *testCluster) mustHaveIntactRules(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	commands := [][]string{{"check", "--node"}, {"doctor", "--node"}}
	for _, p := range pods {
		commands = append(commands, []string{"check", "--pod", p.Namespace + "/" + p.Name})
	}
	for _, c := range commands {
		eventually(t, readyTimeout, fmt.Sprintf("rules %s succeeds", strings.Join(c, " ")), func(ctx context.Context) error {
			_, err := tc.rules(ctx, t, c...)
			return err
		})
	}
}

// rules runs the command rules in the agent's container.
func (tc *testCluster) rules(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := tc.exec(ctx, tc.agentPod(t), agent, append([]string{"rules"}, args...)...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return out, err
}

// mustHaveUncapturedProbes fails the test unless the kubelet's last probe of each pod bypassed
// ztunnel.
func (tc *testCluster) mustHaveUncapturedProbes(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for i, p := range pods {
		ipv4, _ := addresses(p)
		from := pods[(i+1)%len(pods)]
		r := tc.report(t, from, "http://"+netip.AddrPortFrom(ipv4, mesh.Port).String()+"/last/ready")
		if r.Answer == nil || len(r.Answer.Via) > 0 {
			t.Errorf("the last probe of %s, want no proxy: answer %+v, error %q", p.Name, r.Answer, r.Error)
		}
	}
}

// flushAndWait is a script that flushes all rules of the node. It prints the milliseconds until the
// node has rules of Sluice again.
const flushAndWait = `nft flush ruleset; begin=$(date +%s%3N)
until nft list table inet sluice >/dev/null 2>&1; do :; done; echo $(($(date +%s%3N) - begin))`

// checkAmbientFlush flushes all rules of the node, including the rules of other programs.
func checkAmbientFlush(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.waitAnnotated(t, "enabled", pods...)
	requests := tc.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	requests.waitForMore(t, 2)
	repairs := tc.hostRulesRepairs(t)
	begin := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	milliseconds, err := tc.onNode(ctx, "sh", "-c", flushAndWait)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the node's rules were restored after %s ms", strings.TrimSpace(milliseconds))
	// kube-proxy restores its rules only after a while, but immediately after a restart.
	if err := tc.node().KillService(t.Context(), cluster.Proxy); err != nil {
		t.Fatal(err)
	}
	requests.waitForMore(t, 2)
	requests.end(t)
	tc.mustHaveIntactRules(t, pods...)
	for _, p := range pods {
		if err := tc.checkReadySince(t.Context(), p, begin); err != nil {
			t.Error(err)
		}
	}
	if now := tc.hostRulesRepairs(t); now <= repairs {
		t.Errorf("the metric counts %d repairs, want more than the previous %d", now, repairs)
	}
	eventually(t, readyTimeout, "an event of the node reports the repair", func(ctx context.Context) error {
		events, err := tc.client.CoreV1().Events(metav1.NamespaceAll).List(ctx,
			metav1.ListOptions{FieldSelector: "reason=HostRulesChanged,involvedObject.name=" + tc.node().Name()})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, "were changed by another program, and the agent has restored them") {
				return nil
			}
		}
		return fmt.Errorf("no such message in %d events", len(events.Items))
	})
}

// repairsOfHost matches the metric that counts the repairs of the node's rules.
var repairsOfHost = regexp.MustCompile(`(?m)^sluice_host_rules_events_total\{event="repaired"\} (\d+)$`)

// hostRulesRepairs returns how often the agent has restored the node's rules.
func (tc *testCluster) hostRulesRepairs(t *testing.T) int {
	t.Helper()
	text, err := tc.client.CoreV1().Pods(agentNamespace).
		ProxyGet("http", tc.agentPod(t).Name, monitoringPort, "metrics", nil).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := repairsOfHost.FindSubmatch(text)
	if m == nil {
		return 0
	}
	number, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// checkAmbientBackend moves the rules of running pods and of the node to the other backend and
// back.
func checkAmbientBackend(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.waitAnnotated(t, "enabled", pods...)
	begin := time.Now()
	requests := tc.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	requests.waitForMore(t, 2)
	for _, change := range []struct{ backend, by string }{{"legacy", "iptables-legacy"}, {"nft", "nft"}} {
		tc.mustUpgrade(t, append(ambientArgs(), "--set", "backend="+change.backend)...)
		for _, scope := range append([][]string{{"--node"}}, podFlags(pods)...) {
			// rules check reports rules that remain in the other backend as a difference.
			description := fmt.Sprintf("rules check %s finds rules in %s", strings.Join(scope, " "), change.by)
			eventually(t, readyTimeout, description, func(ctx context.Context) error {
				out, err := tc.rules(ctx, t, append([]string{"check"}, scope...)...)
				if err == nil && !strings.Contains(out, ", by "+change.by) {
					err = errors.New(out)
				}
				return err
			})
		}
		requests.waitForMore(t, 2)
		t.Logf("backend %s: %s", change.backend, time.Since(begin).Round(time.Millisecond))
	}
	requests.end(t)
	for _, p := range pods {
		if err := tc.checkReadySince(t.Context(), p, begin); err != nil {
			t.Error(err)
		}
	}
}

// podFlags returns the flags of the rules command that name the pods.
func podFlags(pods []*corev1.Pod) (flags [][]string) {
	for _, p := range pods {
		flags = append(flags, []string{"--pod", p.Namespace + "/" + p.Name})
	}
	return flags
}

// checkAmbientDisabled disables ambient mode in the order of the manual: the first upgrade selects
// no pods, the second one disables ambient mode.
func checkAmbientDisabled(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), meshPod(ns, "sidecar"))
	a, b, sidecar := pods[0], pods[1], pods[2]
	tc.waitAnnotated(t, "enabled", a, b)
	_, err := tc.helm(t.Context(), append([]string{"upgrade"}, tc.chartArgs()...)...)
	if err == nil || !strings.Contains(err.Error(), "enablementSelectors") {
		t.Errorf("an upgrade that disables ambient mode while pods are selected, want an error that names "+
			"enablementSelectors: error %v", err)
	}
	tc.mustUpgrade(t, append(ambientArgs(), "--set-json", "ambient.enablementSelectors=[]")...)
	tc.waitAnnotated(t, "", a, b)
	func() {
		tc.mu.Lock()
		defer tc.mu.Unlock() // also if the test fails, because saveOnFailure locks mu
		tc.mustUpgrade(t)
		tc.ambient = false
	}()
	eventually(t, readyTimeout, "the node has no rules", func(ctx context.Context) error {
		has, err := tc.hasHostRules(ctx)
		if err == nil && has {
			err = errors.New("the node has rules for probes")
		}
		return err
	})
	for _, p := range []*corev1.Pod{a, b} {
		tc.mustHaveNoRules(t, p)
	}
	ipv4, _ := addresses(b)
	tc.mustReach(t, a, url(ipv4.String(), mesh.Port), path.Expected{Server: "b"})
	tc.mustReach(t, sidecar, url(ipv4.String(), mesh.Port), path.Expected{Server: "b", Outbound: true})
	tc.run(t, mesh.Pod(ns, "c"))
	tc.mustStopZtunnel(t)
}

// mustHaveNoRules fails the test if the network namespace of a pod has rules or routes of Sluice.
func (tc *testCluster) mustHaveNoRules(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	s := tc.mustSandbox(t, pod)
	for _, command := range [][]string{
		{"nft", "list", "ruleset"},
		{"ip", "-4", "rule"},
		{"ip", "-6", "rule"},
		{"ip", "route", "show", "table", "all", "type", "local", "default"},
	} {
		out, err := tc.inNetns(t.Context(), s, command...)
		if err != nil || strings.Contains(out, "sluice") || strings.Contains(out, "fwmark") ||
			strings.Contains(out, "default") && strings.HasPrefix(strings.Join(command, " "), "ip route") {
			t.Errorf("%s in %s, want no rule or route of Sluice: error %v\n%s", strings.Join(command, " "), pod.Name, err, out)
		}
	}
}
