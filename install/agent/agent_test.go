package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// lastEvent returns the reason of the last event; empty if there is none.
func (tn *testNode) lastEvent() string {
	events := tn.Events()
	if len(events) == 0 {
		return ""
	}
	return events[len(events)-1].Reason
}

func (tn *testNode) chain() []string {
	tn.t.Helper()
	data, err := os.ReadFile(tn.path("conf/10-net.conflist"))
	if err != nil {
		tn.t.Fatal(err)
	}
	list, err := chain.Parse(data)
	if err != nil {
		tn.t.Fatal(err)
	}
	return list.Types()
}

// TestPluginStaysForAnUpgradeAndLeavesWithTheDaemonSet covers an agent that installs, serves and
// reports. If it is stopped for an upgrade, it keeps everything in place, and the next agent takes
// over. If it is stopped because its DaemonSet is deleted, it leaves nothing.
func TestPluginStaysForAnUpgradeAndLeavesWithTheDaemonSet(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.Put(`
metadata: {name: web, uid: "1"}
spec: {nodeName: node-1, containers: [{name: istio-proxy}]}`)
	before := netnstest.Descriptors(t)
	start := time.Now()
	first := tn.run(nil)
	first.waitReady()
	t.Logf("ready after %v", time.Since(start))
	if diff := cmp.Diff([]string{"bridge", "sluice-cni"}, tn.chain()); diff != "" {
		t.Errorf("chain (-want +got):\n%s", diff)
	}
	client := tn.client()
	if pod, err := client.Pod(t.Context(), source.Ref{
		Namespace: "default", Name: "web", UID: "1",
	}); err != nil || !pod.HasUID("1") {
		t.Errorf("the socket returns the pod %v, %v; want uid 1", pod, err)
	}
	add := protocol.Add{
		Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
		Duration: time.Millisecond, Bytes: 2048,
	}
	if err := client.Report(add); err != nil {
		t.Error(err)
	}
	// The agent fetches the pod if it has not listed the node's pods yet.
	answered := regexp.MustCompile(`\nsluice_serve_requests_total\{result="(success|fetched)"\} [1-9]`)
	first.until("the metrics contain the answers, the ADD and the installation", func() bool {
		_, text := first.get("MONITORING_PORT", "/metrics")
		return answered.MatchString(text) && !slices.ContainsFunc([]string{
			"\nsluice_install_ready 1\n", "\nistio_cni_install_ready 1\n",
			"\nsluice_chain_bypassed 0\n", "\nsluice_token_age_seconds ",
			"\nsluice_install_part_ready{part=\"kubeconfig\"} 1\n",
			"\nsluice_adds_total{backend=\"nft\",decision=\"redirect\",result=\"success\"} 1\n",
			"\nistio_cni_installs_total{result=\"SUCCESS\"} ",
			"\nsluice_token_publications_total{result=\"success\"} 1\n",
		}, func(line string) bool { return !strings.Contains(text, line) })
	})
	if code, _ := first.get("SLUICE_HEALTH_PORT", "/healthz"); code != 200 {
		t.Errorf("/healthz: %d, want 200", code)
	}
	first.end()
	if diff := cmp.Diff([]string{"bridge", "sluice-cni"}, tn.chain()); diff != "" {
		t.Errorf("chain after the stop for an upgrade (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(tn.path("run/sluice-cni-kubeconfig")); err != nil {
		t.Error(err)
	}

	second := tn.run(nil)
	second.waitReady()
	tn.SetDaemonSet("")
	second.end()
	remaining := tn.files("conf", "bin", "run", "state")
	if data, err := os.ReadFile(tn.path("conf/10-net.conflist")); err != nil ||
		string(data) != primary {
		t.Errorf("the restored configuration is\n%s\nerror %v, want the original", data, err)
	}
	if diff := cmp.Diff([]string{"bin/bridge", "conf/10-net.conflist"}, remaining); diff != "" {
		t.Errorf("remaining files (-want +got):\n%s", diff)
	}
	// The test server keeps connections open for a moment.
	rulestest.Eventually(t, fmt.Sprintf("%d open descriptors", before+2), func() bool {
		return netnstest.Descriptors(t) <= before+2
	})
}

// add calls ADD of the plugin for the pod web, which must succeed.
func (tn *testNode) add(pod *netns.NS) {
	tn.t.Helper()
	if out, err := tn.startADD("web", "1", pod)(); err != nil {
		tn.t.Fatalf("ADD: %v\n%s", err, out)
	}
}

// startADD starts an ADD of the plugin with the configuration that the agent has written. It
// returns a function that waits for the end of the ADD, and returns the output and the error.
func (tn *testNode) startADD(name, uid string, pod *netns.NS) (wait func() (string, error)) {
	tn.t.Helper()
	data, err := os.ReadFile(tn.path("conf/10-net.conflist"))
	if err != nil {
		tn.t.Fatal(err)
	}
	list, err := chain.Parse(data)
	if err != nil {
		tn.t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(list.Elements("sluice-cni")[0].Raw, &config); err != nil {
		tn.t.Fatal(err)
	}
	config["name"], config["cniVersion"] = list.Name, list.CNIVersion
	config["prevResult"] = map[string]any{
		"cniVersion": list.CNIVersion, "ips": []any{map[string]any{"address": "10.1.0.7/24"}},
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		tn.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tn.t.Fatal(err)
	}
	add := exec.CommandContext(tn.t.Context(), self)
	add.Stdin = bytes.NewReader(stdin)
	add.Env = []string{
		"CNI_COMMAND=ADD", "CNI_PATH=" + tn.path("bin"), "CNI_CONTAINERID=c-" + uid, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), pod.FD()),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name + ";K8S_POD_UID=" + uid,
		"GORACE=atexit_sleep_ms=0",
	}
	var out bytes.Buffer
	add.Stdout, add.Stderr = &out, &out
	if err := add.Start(); err != nil {
		tn.t.Fatal(err)
	}
	return func() (string, error) {
		err := add.Wait()
		return out.String(), err
	}
}

// TestReadyMeansThatADDWorks checks that the plugin redirects a pod with the agent's configuration
// once the agent is ready.
func TestReadyMeansThatADDWorks(t *testing.T) {
	pod := netnstest.New(t)
	tn := newTestNode(t)
	tn.Put(`
metadata:
  {name: web, uid: "1", labels: {sidecar.istio.io/inject: "true"}, annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}`)
	r := tn.run(nil)
	r.waitReady()
	tn.add(pod)
	if installed, err := compat.InstalledBackends(pod); err != nil || len(installed) != 1 {
		t.Errorf("%d backends have rules in the pod, want 1; error %v", len(installed), err)
	}
	r.end()
}

// TestKernelIsCheckedFirst checks that nothing is installed on a node whose kernel lacks support,
// and that the readiness probe and an event report the reason.
func TestKernelIsCheckedFirst(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // mostly waits
	tn := newTestNode(t)
	r := tn.run(func(a *agent.Agent) {
		a.SetChoose(func(compat.BackendName) (compat.Backend, error) {
			return nil, errors.New("no nf_tables here")
		})
	})
	r.until("an event about the kernel is sent", func() bool { return len(tn.Events()) > 0 })
	if e := tn.Events()[0]; e.Type != "Warning" || e.Reason != "KernelUnsupported" ||
		!strings.Contains(e.Message, "no nf_tables here") {
		t.Errorf("the event is %+v, want KernelUnsupported with the reason", e)
	}
	r.until("the kubeconfig is ready", func() bool {
		return strings.HasPrefix(r.reasons(observe.Kubeconfig), "true")
	})
	if text := r.reasons(observe.Kernel); r.readiness().Ready ||
		!strings.Contains(text, "no nf_tables here") {
		t.Errorf("the part kernel is %s; want it not ready, with the reason", text)
	}
	r.end()
	if diff := cmp.Diff([]string{"bin/bridge", "conf/10-net.conflist"}, tn.files("conf", "bin")); diff != "" {
		t.Errorf("installed files (-want +got):\n%s", diff)
	}
}

// TestPluginIsInsertedWhenItCanWork checks that the plugin is inserted only once it can read pods:
// otherwise its ADD would fail, and pods would not start.
func TestPluginIsInsertedWhenItCanWork(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // failed requests are repeated after seconds
	tn := newTestNode(t)
	good := tn.Token()
	api := tn.apiOptions() // has the valid token
	tn.SetToken("another")
	r := tn.start(api, nil)
	r.until("the rejected token is reported", func() bool {
		return strings.Contains(r.reasons(observe.Configuration), "cannot read pods")
	})
	if diff := cmp.Diff([]string{"bridge"}, tn.chain()); diff != "" || r.readiness().Ready {
		t.Errorf("chain, ready %v (-want +got):\n%s", r.readiness().Ready, diff)
	}
	if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 503 ||
		!strings.Contains(text, "[-] configuration") {
		t.Errorf("/readyz with a rejected token: %d %s, want 503", code, text)
	}
	tn.SetToken(good)
	r.waitReady()
	if diff := cmp.Diff([]string{"bridge", "sluice-cni"}, tn.chain()); diff != "" {
		t.Errorf("chain (-want +got):\n%s", diff)
	}
	r.end()
}

// TestInstalledPluginIsNotOutdatedIfTheImageCannotBeRead checks that the installed plugin is not
// reported as an earlier version only because the one in the agent's image cannot be read.
func TestInstalledPluginIsNotOutdatedIfTheImageCannotBeRead(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	if err := os.Remove(tn.path("image/sluice-cni")); err != nil {
		t.Fatal(err)
	}
	tn.writeFile("conf/10-net.conflist", primary)
	r.until("the plugin cannot be compared", func() bool {
		return strings.Contains(r.reasons(observe.Binary), "was installed by the agent, in this or another "+
			"version, but the one in the agent's image differs or cannot be read")
	})
	r.end()
}

// TestReadinessFollowsTheNode checks that a node that the agent cannot repair is not ready, that
// the reasons contain the paths on the node, and that the node is ready after the invalid file was
// corrected.
func TestReadinessFollowsTheNode(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // mostly waits
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	tn.writeFile("conf/10-net.conflist", "{")
	r.until("the node is not ready", func() bool { return !r.readiness().Ready })
	if text := r.reasons(observe.Configuration); !strings.Contains(text, "/etc/cni/net.d") ||
		strings.Contains(text, tn.dir) {
		t.Errorf("the part configuration is %s, want the paths on the node", text)
	}
	r.until("an event about the invalid configuration is sent", func() bool {
		return tn.lastEvent() == "InvalidConfiguration"
	})
	tn.writeFile("conf/10-net.conflist", strings.Replace(primary, "cluster", "other", 1))
	r.waitReady()
	r.until("an event about the end of the problem is sent", func() bool {
		return tn.lastEvent() == "Installed"
	})
	r.end()
}

// TestStartupTaintIsRemovedWhenADDWouldSucceed checks that the taint is removed as soon as an ADD
// would succeed, and that other taints are kept.
func TestStartupTaintIsRemovedWhenADDWouldSucceed(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.addTaints()
	const all = "[" + startupTaint + "," + otherTaint + "]"
	tn.SetTaints(all, 1) // one conflict
	if err := os.Rename(tn.path("conf/10-net.conflist"), tn.path("later")); err != nil {
		t.Fatal(err)
	}
	r := tn.run(nil)
	r.until("the missing configuration is reported", func() bool {
		return strings.Contains(r.reasons(observe.Configuration), "NoNetworkConfiguration")
	})
	if got := tn.Taints(); got != all {
		t.Errorf("taints of a node that is not ready: %s, want %s", got, all)
	}
	if err := os.Rename(tn.path("later"), tn.path("conf/10-net.conflist")); err != nil {
		t.Fatal(err)
	}
	r.until("the start-up taint is removed", func() bool { return tn.Taints() == "["+otherTaint+"]" })
	r.end()
}

func TestPortInUseEndsTheAgent(t *testing.T) {
	tn := newTestNode(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+tn.env["MONITORING_PORT"])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := tn.run(nil)
	if err := <-r.done; err == nil || !strings.Contains(err.Error(), "MONITORING_PORT") {
		t.Errorf("the agent exited with %v, want an error about MONITORING_PORT", err)
	}
}
