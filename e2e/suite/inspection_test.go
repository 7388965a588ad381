package suite_test

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/schematest"
)

var inspection = testGroup{name: "inspection", parallel: true, tests: []groupTest{
	{"rules check in the agent reports no differences for a running pod", checkRulesCheck},
	{
		"kubectl sluice checks, explains, traces and completes pods, and prints the status of nodes",
		checkKubectlPlugin,
	},
	{"rules are equivalent to istio-init's with the same parameters", checkNoDifference},
	{
		"with TPROXY, the only difference from istio-init is the known deviation",
		checkKnownDeviations,
	},
}}

// strict contains the tests with strictIstio.
var strict = testGroup{name: "strictIstio", tests: []groupTest{
	{"with TPROXY, rules are equivalent to istio-init's", checkNoDeviation},
}}

func checkRulesCheck(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a := tc.run(t, meshPod(ns, "a"))[0]
	if out, err := tc.exec(t.Context(), tc.agentPod(t), agent, "rules", "check", "--pod", a.Namespace+
		"/"+a.Name); err != nil {
		t.Errorf("rules check: %v: %s", err, out)
	}
}

func checkKubectlPlugin(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	a, b := pods[0], pods[1]
	kubectl := func(args ...string) *exec.Cmd {
		search := "PATH=" + programDir +
			":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
		return tc.node().Command(t.Context(),
			append([]string{"env", search, "kubectl", "sluice"}, args...)...)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check", ns + "/a"}, "equal: "},
		{[]string{"status", "--namespace", ns, "a"}, "equal: "},
		{[]string{"show", "a", "-n", ns, "--live"}, "redirect to :15006"},
		{
			[]string{"explain", ns + "/a", "out tcp 10.0.0.1:40000 > 10.0.0.2:80 uid 1000"},
			"redirected to port 15001",
		},
		{[]string{"status"}, "nodes are ready"},
		{[]string{"__complete", "check", ns + "/"}, ns + "/a\n" + ns + "/b\n"},
		{[]string{"__complete", "check", "--namespace", ""}, ns + "\n"},
	} {
		if out, err := kubectl(c.args...).CombinedOutput(); err != nil ||
			!strings.Contains(string(out), c.want) {
			t.Errorf("kubectl sluice %q: error %v, want %q in the output: %s", c.args, err, c.want, out)
		}
	}
	if out, err := kubectl("check", ns+"/nobody").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "not found") {
		t.Errorf("check of a nonexistent pod, want \"not found\": error %v: %s", err, out)
	}
	schema, err := os.ReadFile("../../install/cmd/kubectl-sluice/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	status, err := kubectl("status", "--output", "json").Output()
	if err != nil || len(status) == 0 {
		t.Errorf("kubectl sluice status, want a JSON document: error %v: %s", err, status)
	}
	if err := schematest.Validate(string(schema), bytes.NewReader(status)); err != nil {
		t.Errorf("the output of kubectl sluice status does not match its schema: %v", err)
	}
	tc.checkTrace(t, a, b, kubectl)
}

// checkTrace traces a connection from a to b. The client keeps the connection open until the trace
// ends, because trace cannot name the container of a process that has exited.
func (tc *testCluster) checkTrace(
	t *testing.T, a, b *corev1.Pod, kubectl func(args ...string) *exec.Cmd,
) {
	// --to excludes connections of the proxy to its own pod, which the kubelet's probes cause.
	ipv4, _ := addresses(b)
	trace := kubectl("trace", a.Namespace+"/"+a.Name, "-v", "--out", "--to",
		netip.AddrPortFrom(ipv4, mesh.Port).String(), "--count", "1", "--for", wait)
	var output strings.Builder
	started, messages := make(chan struct{}), new(strings.Builder)
	trace.Stdout, trace.Stderr = &output, &firstWrite{messages, started}
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	<-started // trace prints a message when it has started
	request := tc.node().Command(t.Context(), "kubectl", "exec", "--stdin", "--namespace",
		a.Namespace, a.Name, "--container", mesh.AppContainer, "--", "mesh", "get", "-captured",
		"-hold", "-wait", wait, url(ipv4.String(), mesh.Port))
	hold, err := request.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	report := new(bytes.Buffer)
	request.Stdout, request.Stderr = report, report
	if err := request.Start(); err != nil {
		t.Fatal(err)
	}
	err = trace.Wait()
	_ = hold.Close()
	if err := request.Wait(); err != nil {
		t.Errorf("request: %v: %s", err, report)
	}
	for _, want := range []string{
		": captured: outbound to the proxy", "    listener ", "    container ",
		": connected by 127.0.0.1:15001",
	} {
		if err != nil || !strings.Contains(output.String(), want) {
			t.Errorf("trace, want %q in the output: error %v: %s%s", want, err, &output, messages)
		}
	}
}

// A firstWrite is a writer whose first Write closes the channel written.
type firstWrite struct {
	to      io.Writer
	written chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.written != nil {
		close(w.written)
		w.written = nil
	}
	return w.to.Write(p)
}

func checkNoDifference(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	sluicePod := mesh.Pod(ns, "sluice")
	sluicePod.Annotations[mesh.ExcludeOutboundPorts] = "5432,6379"
	sluicePod.Annotations[mesh.ExcludeRanges] = "10.1.0.0/16"
	env := map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"}
	sluicePod = tc.run(t, mesh.Inject(sluicePod, mesh.Sidecar{Env: env}))[0]
	log := tc.istioLog(t, ns, "-m", "REDIRECT", "-x", "10.1.0.0/16", "-o", "5432,6379",
		"--redirect-dns", "--capture-all-dns")
	tc.mustBeEquivalent(t, sluicePod, log)
}

// checkKnownDeviations compares the pod's desired rules with the kernel's rules and with the log of
// istio-iptables. It runs rules diff in the agent.
func checkKnownDeviations(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	sluicePod := tc.run(t, tproxyPod(ns))[0]
	log := tc.istioLog(t, ns, tproxyArgs...)
	diff := func(extra ...string) (string, error) {
		kubectl := tc.node().Command(t.Context(), append([]string{
			"kubectl", "exec", "--stdin", "--namespace", agentNamespace, tc.agentPod(t).Name, "--",
			"rules", "diff", "--pod", ns + "/" + sluicePod.Name,
		}, extra...)...)
		kubectl.Stdin = strings.NewReader(log)
		out, err := kubectl.CombinedOutput()
		return string(out), err
	}
	if out, err := diff(); err != nil || !strings.Contains(out, "equivalent") {
		t.Errorf("rules diff of the running pod, want equivalent rules: error %v: %s", err, out)
	}
	out, err := diff("--istio-log", "-")
	if err != nil || !strings.Contains(out, "equivalent") ||
		!strings.Contains(out, string(rules.TunnelPortTProxy)) {
		t.Errorf("rules diff with istio-init, want equivalent rules and the deviation %s: error %v: %s",
			rules.TunnelPortTProxy, err, out)
	}
	if out, err := diff("--istio-log", "-", "--strict"); err == nil ||
		!strings.Contains(out, "different") {
		t.Errorf("--strict does not report the deviation: error %v: %s", err, out)
	}
}

func checkNoDeviation(t *testing.T, tc *testCluster) {
	upgrade := func(extra ...string) {
		if _, err := tc.helm(t.Context(),
			append([]string{"upgrade"}, tc.chartArgs(extra...)...)...); err != nil {
			t.Fatal(err)
		}
	}
	upgrade("--set", "strictIstio=true")
	defer upgrade()
	ns := tc.newNamespace(t)
	sluicePod := tc.run(t, tproxyPod(ns))[0]
	tc.mustBeEquivalent(t, sluicePod, tc.istioLog(t, ns, tproxyArgs...), "--strict")
}

// tproxyPod returns a dual-stack pod with TPROXY.
func tproxyPod(ns string) *corev1.Pod {
	return mesh.Inject(mesh.Pod(ns, "sluice"), mesh.Sidecar{TProxy: true, Env: dualStackEnv})
}

// tproxyArgs are the arguments of istio-iptables for tproxyPod. They exclude outbound port 15020,
// like istio-cni for a pod without an annotation.
var tproxyArgs = []string{"-m", "TPROXY", "-o", "15020"}
