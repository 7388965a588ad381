package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// An ambientNode is a node with pods in ambient mode, whose agent runs in its own process.
type ambientNode struct {
	*testNode
	*child
	host *netns.NS
	z    *ztunneltest.Ztunnel
}

func newAmbientNode(t *testing.T) *ambientNode {
	t.Helper()
	n := &ambientNode{testNode: newTestNode(t), host: netnstest.New(t)}
	n.env["AMBIENT_ENABLED"], n.env["ZTUNNEL_UDS_ADDRESS"] = "true", n.path("z/z.sock")
	n.env["SLUICE_MOUNTED_PROC_DIR"] = n.startNodeProcess(n.host)
	n.env["SLUICE_MOUNTED_NETNS_DIR"] = n.path("netns")
	return n
}

// startAgent starts an agent and a ztunnel that connects to it.
func (n *ambientNode) startAgent() {
	n.t().Helper()
	n.child = n.startChild()
	n.z = ztunneltest.Start(n.t(), n.path("z/z.sock"), nil)
	n.z.Wait(n.t(), "snapshot")
}

func (n *ambientNode) t() *testing.T { return n.testNode.t }

func (n *ambientNode) path(name string) string { return n.testNode.path(name) }

// putPod adds a pod to the API server. It is running if it has an address.
func (n *ambientNode) putPod(name, uid, address string) {
	n.t().Helper()
	annotation, status := "", ""
	if address != "" {
		annotation, status = "ambient.istio.io/redirection: enabled", "status: {phase: Running, podIP: "+address+"}"
	}
	n.Put(fmt.Sprintf(`
metadata: {name: %s, uid: %q, labels: {istio.io/dataplane-mode: ambient}, annotations: {%s}}
spec: {nodeName: node-1, serviceAccountName: shop, containers: [{name: app}]}
%s`, name, uid, annotation, status))
}

// addSandbox adds the sandbox of a pod to the runtime's cache.
func (n *ambientNode) addSandbox(name, uid string, ns *netns.NS) {
	n.t().Helper()
	result, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": "c-" + uid, "ifName": "eth0", "netns": "/var/run/netns/" + uid,
		"cniArgs": [][2]string{
			{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", uid},
		},
	})
	if err != nil {
		n.t().Fatal(err)
	}
	n.writeFile("cache/results/cluster-c-"+uid+"-eth0", string(result))
	if err = os.MkdirAll(n.path("netns"), 0o755); err == nil {
		err = os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), filepath.Join(n.path("netns"), uid))
	}
	if err != nil {
		n.t().Fatal(err)
	}
}

// startWebPod starts the pod web in a new network namespace, and waits until the pod is enrolled.
func (n *ambientNode) startWebPod() *netns.NS {
	n.t().Helper()
	ns := netnstest.New(n.t())
	n.putPod("web", "1", "")
	n.add(ns)
	n.addSandbox("web", "1", ns)
	n.until("the annotation is enabled", func() bool {
		return slices.ContainsFunc(n.PodChanges(), func(change string) bool {
			return strings.Contains(change, `{"ambient.istio.io/redirection":"enabled"}`)
		})
	})
	n.putPod("web", "1", "10.1.0.7")
	return ns
}

func (n *ambientNode) flush(ns *netns.NS) {
	n.t().Helper()
	if err := ns.Do(func() error { return exec.Command("nft", "flush", "ruleset").Run() }); err != nil {
		n.t().Fatal(err)
	}
}

func (n *ambientNode) hasEvent(reason, text string) bool {
	return slices.ContainsFunc(n.Events(), func(e apiservertest.Event) bool {
		return e.Reason == reason && strings.Contains(e.Message, text)
	})
}

// checkRefused checks that a pod does not start, because the agent does not answer.
func (n *ambientNode) checkRefused(wait func() (string, error), ns *netns.NS) {
	n.t().Helper()
	out, err := wait()
	if err == nil || !strings.Contains(out, "is in ambient mode and cannot be enrolled") {
		n.t().Errorf("ADD without an agent: %v, %s; want an error about the enrollment", err, out)
	}
	if backendsWithRules(n.t(), ns) != 0 {
		n.t().Error("the pod has rules although it did not start")
	}
}

// TestAmbientModeSurvivesAKilledAgent checks that running pods keep their rules while no agent
// runs, and that no new pod in ambient mode starts. The next agent finds the pods again without a
// state directory, from the API server, the runtime and the kernel. It repairs changes, and reports
// the repairs.
func TestAmbientModeSurvivesAKilledAgent(t *testing.T) {
	n := newAmbientNode(t)
	n.startAgent()
	web := n.startWebPod()
	n.kill()
	if backendsWithRules(t, web) != 1 || backendsWithRules(t, n.host) != 1 {
		t.Error("the rules were removed with the agent")
	}
	late := netnstest.New(t)
	n.putPod("late", "2", "")
	n.checkRefused(n.startADD("late", "2", late), late)
	n.flush(web)
	for _, dir := range []string{"run", "state"} {
		if err := os.RemoveAll(n.path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	n.startAgent()
	n.until("the rules are restored", func() bool { return backendsWithRules(t, web) == 1 })
	n.z.Wait(t, "add 1")
	if n.z.Pods()["1"] != web.ID() {
		t.Error("ztunnel has a network namespace other than the pod's")
	}
	n.until("an event about the repair is sent", func() bool { return n.hasEvent("RedirectRepaired", "no rule is left; the redirection is restored") })
	if out, err := n.startADD("late", "2", late)(); err != nil || backendsWithRules(t, late) != 1 {
		t.Errorf("ADD with the next agent: %v, %s; want success with rules", err, out)
	}
	n.kill()
}

// TestAmbientModeSurvivesAStoppedAgent checks that no pod starts while SIGSTOP suspends the agent:
// ADD waits, and fails if the agent is killed. Changes are repaired when the agent continues.
func TestAmbientModeSurvivesAStoppedAgent(t *testing.T) {
	t.Parallel() // mostly waits
	n := newAmbientNode(t)
	n.startAgent()
	web := n.startWebPod()
	n.signal(syscall.SIGSTOP)
	n.flush(web)
	n.flush(n.host)
	n.signal(syscall.SIGCONT)
	n.until("the rules are restored", func() bool { return backendsWithRules(t, web) == 1 && backendsWithRules(t, n.host) == 1 })
	n.until("events about both repairs are sent", func() bool {
		return n.hasEvent("RedirectRepaired", "restored") && n.hasEvent("HostRulesChanged", "restored")
	})

	n.signal(syscall.SIGSTOP)
	late := netnstest.New(t)
	n.putPod("late", "2", "")
	wait := n.startADD("late", "2", late)
	socket := n.path("run/agent/") // the name of the socket before it was renamed
	n.until("ADD waits for the agent", func() bool {
		data, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		// These are the listener, the request for the pod, and the request to enroll it.
		return strings.Count(string(data), socket) >= 3
	})
	if backendsWithRules(t, late) != 0 {
		t.Error("the pod has rules before the agent answers")
	}
	n.kill()
	n.checkRefused(wait, late)
}
