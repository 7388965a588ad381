package agent_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// addRedirectedPod adds to the node a pod that ADD has redirected, and returns the redirection. The
// pod has no sandbox until addSandbox creates one.
func (tn *testNode) addRedirectedPod() rules.Redirect {
	tn.t.Helper()
	tn.Put(`
metadata: {name: web, uid: "1", annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status: {phase: Running, podIP: 10.1.0.7}`)
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	err := record.In(tn.path("run")).Put(record.Record{
		Key: record.Key{ContainerID: "a", IfName: "eth0"}, Netns: "/var/run/netns/cni-1",
		Pod: record.Pod{Namespace: "default", Name: "web", UID: "1"}, Outcome: "redirect",
		Reason:   "mesh-pod",
		Redirect: &r, Backend: compat.BackendNFT, Time: time.Now(),
	})
	if err != nil {
		tn.t.Fatal(err)
	}
	return r
}

// addSandbox creates the network namespace of the pod that addRedirectedPod has added. It returns
// the namespace and the file that the runtime mounts.
func (tn *testNode) addSandbox(r rules.Redirect) (ns *netns.NS, file string) {
	tn.t.Helper()
	ns, file = tn.addNetNS()
	backend, err := compat.Choose(compat.BackendNFT)
	if err == nil {
		_, err = backend.Apply(ns, rules.MustCompile(r), compat.Snapshot{})
	}
	if err != nil {
		tn.t.Fatal(err)
	}
	return ns, file
}

// addNetNS creates the network namespace /var/run/netns/cni-1, and returns the namespace and its
// file.
func (tn *testNode) addNetNS() (ns *netns.NS, file string) {
	tn.t.Helper()
	ns, file = netnstest.NewPod(tn.t), tn.path("netns/cni-1")
	tn.env["SLUICE_MOUNTED_NETNS_DIR"] = tn.path("netns")
	err := os.MkdirAll(tn.path("netns"), 0o755)
	if err == nil {
		err = os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), file)
	}
	if err != nil {
		tn.t.Fatal(err)
	}
	return ns, file
}

// cacheResult adds the result of the primary network for a pod in /var/run/netns/cni-1 to the
// runtime's cache. The UID is the one that the pod has in the kubelet.
func (tn *testNode) cacheResult(name, uid string) {
	tn.t.Helper()
	tn.writeFile("cache/results/net-c1-eth0", fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": "c1",
		"ifName": "eth0", "netns": "/var/run/netns/cni-1", "cniArgs": [["K8S_POD_NAMESPACE", "default"],
			["K8S_POD_NAME", %q], ["K8S_POD_UID", %q]]}`, name, uid))
}

// redirectedPodsAre returns a function that reports whether the metric of redirected pods is n.
func redirectedPodsAre(r *running, n string) func() bool {
	return func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return strings.Contains(text, "\nsluice_pods{state=\"redirected\"} "+n+"\n")
	}
}

// TestAStaticPodWithoutARecordIsRepaired checks that the agent redirects a static pod for which the
// plugin was not called. The agent finds the sandbox in the runtime's cache by the UID that the pod
// has in the kubelet.
func TestAStaticPodWithoutARecordIsRepaired(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	ns, _ := tn.addNetNS()
	tn.cacheResult("web-node-1", "8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d")
	tn.Put(`
metadata:
  name: web-node-1
  uid: "1"
  annotations:
    kubernetes.io/config.mirror: 8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d
    sidecar.istio.io/status: "{}"
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status: {phase: Running, podIP: 10.1.0.7}`)
	r := tn.run(nil)
	r.until("the pod is redirected", redirectedPodsAre(r, "1"))
	if backendsWithRules(t, ns) != 1 {
		t.Error("the pod has no rules")
	}
	r.end()
}

// TestAPodThatThePluginCouldNotReadIsRepaired checks that the agent redirects a pod that ADD has
// not redirected, because the plugin could not read the pod, and that an event contains the reason.
func TestAPodThatThePluginCouldNotReadIsRepaired(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.env["SLUICE_UNREADABLE_PODS"] = "skip"
	ns, _ := tn.addNetNS()
	if err := record.In(tn.path("run")).Put(record.Record{
		Key: record.Key{ContainerID: "a", IfName: "eth0"}, Netns: "/var/run/netns/cni-1",
		Pod:     record.Pod{Namespace: "default", Name: "web", UID: "1"},
		Outcome: "skip", Reason: protocol.PodUnreadable, Time: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	tn.Put(`
metadata: {name: web, uid: "1", annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status: {phase: Running, podIP: 10.1.0.7}`)
	r := tn.run(nil)
	r.until("the pod is redirected", redirectedPodsAre(r, "1"))
	if backendsWithRules(t, ns) != 1 {
		t.Error("the pod has no rules")
	}
	r.until("an event contains the reason", func() bool {
		return strings.HasPrefix(tn.lastMessage("RedirectRepaired"),
			"the plugin could not read the pod when the pod started; the pod is redirected now")
	})
	r.end()
}

// TestAForceDeletedPodIsAudited checks that the running agent and the next one audit, count and
// repair a pod after the API server has removed it, and that the pod is no longer counted when its
// sandbox has ended.
func TestAForceDeletedPodIsAudited(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // the end of the sandbox is noticed after seconds
	tn := newTestNode(t)
	ns, file := tn.addSandbox(tn.addRedirectedPod())
	r := tn.run(nil)
	r.until("the pod is redirected", redirectedPodsAre(r, "1"))
	tn.DeletePod("default", "web")
	for range 2 {
		if backend, err := compat.Choose(compat.BackendNFT); err != nil {
			t.Fatal(err)
		} else if _, err := backend.Remove(ns); err != nil {
			t.Fatal(err)
		}
		r.until("the rules are restored", func() bool { return backendsWithRules(t, ns) == 1 })
		r.until("the pod is counted", redirectedPodsAre(r, "1"))
		r.end()
		r = tn.run(nil)
	}
	r.until("the pod is redirected", redirectedPodsAre(r, "1"))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.until("the pod is no longer counted", redirectedPodsAre(r, "0"))
	r.end()
}

// locate requests the location of the pod web from the agent's socket.
func (tn *testNode) locate() (l protocol.Location) {
	tn.t.Helper()
	conn, err := new(net.Dialer).DialContext(tn.t.Context(), "unix",
		protocol.SocketIn(tn.path("run")))
	if err != nil {
		tn.t.Fatal(err)
	}
	defer conn.Close()
	request := protocol.Request{
		Version: protocol.Version, Verb: protocol.AskLocate, Namespace: "default", Name: "web",
	}
	frame, err := protocol.AppendJSON(nil, request, protocol.MaxRequest)
	if err == nil {
		_, err = conn.Write(frame)
	}
	var answer protocol.Answer
	for _, into := range []any{&answer, &l} {
		if err == nil {
			frame, err = protocol.ReadFrame(conn, protocol.MaxBody)
		}
		if err == nil {
			err = json.Unmarshal(frame, into)
		}
	}
	if err != nil {
		tn.t.Fatalf("the location cannot be read: %v; the answer is %+v", err, answer)
	}
	return l
}

// TestAgentAuditsAndLocatesThePodsOfItsNode checks that the agent audits the pods of its node,
// shows their states, and returns their locations.
func TestAgentAuditsAndLocatesThePodsOfItsNode(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	want := tn.addRedirectedPod()
	r := tn.run(nil)
	r.waitReady()
	r.until("the pod is counted", func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return strings.Contains(text, "\nsluice_pods{state=\"unknown\"} 1\n")
	})
	for _, part := range []string{
		"kernel", "binary", "configuration", "permissions", "runtime", "kubeconfig", "socket",
	} {
		r.until(part+" is shown as ready", func() bool { // with two kinds of access to pods, one may be ready later
			_, text := r.get("MONITORING_PORT", "/metrics")
			return strings.Contains(text, "\nsluice_install_part_ready{part=\""+part+"\"} 1\n")
		})
	}
	if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 200 ||
		!strings.Contains(text, "\n[?] runtime\n    cannot determine for some pods whether the runtime called the plugin (number of pods: 1)") {
		t.Errorf("/readyz with a pod whose sandbox is not found: %d %s, want 200 and [?] runtime", code, text)
	}
	l := tn.locate()
	if l.UID != "1" || l.Decision != "redirect" || l.Backend != "nft" || l.NetNS != "" ||
		!rules.Equal(rules.MustCompile(want), rules.MustCompile(*l.Redirect)) {
		t.Errorf("the location is %+v, want the redirection of the record and no network namespace", l)
	}
	r.end()
}

// TestPodsAreAuditedWithoutTheSocket checks that pods are audited without the socket too, and that
// pods are watched only if a feature needs them.
func TestPodsAreAuditedWithoutTheSocket(t *testing.T) {
	netnstest.RequireRoot(t)
	for audited, line := range map[string]string{
		"true": "\nsluice_pods{state=\"unknown\"} 1\n", "false": "\nsluice_install_ready 1\n",
	} {
		tn := newTestNode(t)
		tn.addRedirectedPod()
		tn.env["SLUICE_SERVE"], tn.env["SLUICE_AUDIT"], tn.env["REPAIR_ENABLED"] = "false", audited,
			"false"
		r := tn.run(nil)
		r.waitReady()
		text := ""
		r.until("the metrics contain "+line, func() bool {
			_, text = r.get("MONITORING_PORT", "/metrics")
			return strings.Contains(text, line)
		})
		if audited == "false" && strings.Contains(text, "\nsluice_pods{") {
			t.Error("pods are counted without audit")
		}
		r.end()
		for _, request := range tn.Requests() {
			if audited == "false" && request.Path == "/api/v1/pods" {
				t.Error("pods are listed although no feature needs them")
			}
		}
	}
}
