package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/record/recordtest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestADDSkipsPodsThatNeedNoRedirection checks pods that are not redirected: their namespace has no
// rules, the result is the previous one, and the record contains the reason.
func TestADDSkipsPodsThatNeedNoRedirection(t *testing.T) {
	for file, reason := range map[string]decide.Reason{
		"plain": decide.NoProxyContainer, "istio-init": decide.IstioInit,
		"host-network": decide.HostNetwork,
		"not-injected": decide.NotInjected, "opt-out-label": decide.OptOutLabel,
		"none": decide.InterceptionNone, "gateway": decide.ProxyType,
	} {
		t.Run(file, func(t *testing.T) {
			env, ns := newTestEnv(t, file), netnstest.New(t)
			c := newCall(t, ns)
			if got := env.add(t, c); got != c.prevResult {
				t.Errorf("result: %s, want the previous one", got)
			}
			checkNoRules(t, ns)
			if r := c.record(t); r.Outcome != "skip" || r.Reason != string(reason) ||
				r.Redirect != nil {
				t.Errorf("record: %+v, want reason %s", r, reason)
			}
			line := env.logLines(t)[0]
			if line["msg"] != "ADD" || line["decision"] != "skip" ||
				line["reason"] != string(reason) || line["why"] == "" {
				t.Errorf("log: %v, want a line about ADD with skip (%s) and an explanation", line, reason)
			}
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %v", e)
			}
		})
	}
}

// TestADDRequestsNoPodIfArgumentsSuffice checks that the pod is not requested if the runtime's
// arguments suffice for the decision.
func TestADDRequestsNoPodIfArgumentsSuffice(t *testing.T) {
	for name, change := range map[string]func(c *sandboxCall){
		"a sandbox without a pod": func(c *sandboxCall) { c.args = "" },
		"a pod without a name": func(c *sandboxCall) {
			c.args = "K8S_POD_NAMESPACE=shop"
		},
		"a pod in an excluded namespace": func(c *sandboxCall) {
			c.stdin = c.configuration(`"exclude_namespaces":["kube-system","shop"]`)
		},
		"a pod of the node agent": func(c *sandboxCall) {
			c.stdin = c.configuration(`"pod_namespace":"shop"`)
			c.args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=sluice-node-x7k2p"
		},
		"a pod whose annotations show that it was not injected": func(c *sandboxCall) {
			c.stdin = c.configuration(`"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := newTestEnv(t, "sidecar")
			c := newCall(t, nil)
			change(&c)
			if got := env.add(t, c); got != c.prevResult {
				t.Errorf("result: %s, want the previous one", got)
			}
			if len(env.source.requested) > 0 {
				t.Errorf("requests: %v, want none", env.source.requested)
			}
		})
	}
}

// TestADDRequestsThePod checks that the pod is requested by the names and the UID that the runtime
// passes, and the namespace only if a selector needs it.
func TestADDRequestsThePod(t *testing.T) {
	podRequest := "pod shop/" + podName + " " + podUID
	selecting := `"enablement_selectors":[{"namespaceSelector":{"matchLabels":{"mesh":"on"}}}]`
	for _, tc := range []struct {
		name, field string
		labels      map[string]string
		requested   []string
		outcome     string
	}{
		{"no selectors", `"backend":"auto"`, nil, []string{podRequest}, "redirect"},
		{
			"a pod in a selected namespace", selecting,
			map[string]string{"mesh": "on"},
			[]string{podRequest, "namespace shop"},
			"redirect",
		},
		{
			"a pod in a namespace that is not selected", selecting, nil,
			[]string{podRequest, "namespace shop"},
			"skip",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			env.source.namespace = &decide.Namespace{Metadata: decide.Metadata{
				Name: "shop", Labels: tc.labels,
			}}
			c := newCall(t, ns)
			c.stdin = c.configuration(tc.field)
			env.add(t, c)
			if diff := cmp.Diff(tc.requested, env.source.requested); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if r := c.record(t); r.Outcome != tc.outcome {
				t.Errorf("record: %+v, want %s", r, tc.outcome)
			}
		})
	}
}

// TestADDStoresARecord checks the record of a redirected pod, which contains the parameters of its
// rules.
func TestADDStoresARecord(t *testing.T) {
	env, ns := newTestEnv(t, "tproxy"), netnstest.New(t)
	c := newCall(t, ns)
	now := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	env.Now = func() time.Time { return now }
	env.add(t, c)
	redirect, _, err := decide.Parameters(env.source.pod,
		[]netip.Addr{netip.MustParseAddr("10.244.1.5")}, &decide.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	want := record.Record{
		Key:     record.Key{ContainerID: c.id, IfName: "eth0"},
		Network: "e2e", Netns: c.netns,
		Pod:     record.Pod{Namespace: "shop", Name: podName, UID: podUID},
		Outcome: "redirect", Reason: "mesh-pod", Backend: compat.BackendNFT, Redirect: &redirect,
		Time: now,
	}
	if diff := cmp.Diff(want, c.record(t),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// TestUnreadablePods checks both policies for a pod that cannot be read: the pod does not start and
// the error contains the cause, or it starts without redirection and the log contains an error.
func TestUnreadablePods(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind source.Kind
		code uint
	}{
		{"the API server is unavailable", source.Unavailable, types.ErrTryAgainLater},
		{"another pod still has the name", source.Replaced, types.ErrTryAgainLater},
		{"the pod does not exist", source.NotFound, 100},
		{"the credentials are invalid", source.Unauthorized, 100},
		{"the credentials lack permissions", source.Forbidden, 100},
		{"there is no kubeconfig", source.Misconfigured, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, ns := newTestEnv(t, ""), netnstest.New(t)
			env.source.err = source.WithKind(tc.kind,
				errors.New("API server 10.0.0.1:443: first line\nsecond line"))
			c := newCall(t, ns)
			e := env.call("ADD", c)
			want := verbError{
				Code: tc.code,
				Msg: fmt.Sprintf(
					"pod shop/%s cannot be read, so it is not known whether it is in the mesh (%s)",
					podName, tc.kind),
				Details: "API server 10.0.0.1:443: first line; second line",
			}
			if e == nil || *e != want {
				t.Fatalf("ADD: %v\nwant %v", e, &want)
			}
			if env.stdout.Len() > 0 {
				t.Errorf("standard output: %q, want none", env.stdout.String())
			}
			c.checkNoRecord(t)
			line := env.logLines(t)[0]
			if line["level"] != "error" || line["code"] != float64(tc.code) ||
				line["error"] != want.Msg || line["details"] != want.Details ||
				line["decision"] != "unreadable" || line["reason"] != "pod-unreadable" {
				t.Errorf("log: %v, want the error with the decision unreadable", line)
			}

			c.stdin = c.configuration(`"unreadable_pods":"skip"`)
			env.stderr.Reset()
			if got := env.add(t, c); got != c.prevResult {
				t.Errorf("result: %s, want the previous one", got)
			}
			if line := env.logLines(t)[0]; line["level"] != "error" ||
				line["reason"] != "pod-unreadable" || line["unreadable"] == nil {
				t.Errorf("log: %v, want an error with the reason pod-unreadable", line)
			}
			checkNoRules(t, ns)
			// CHECK requests the pod again, and fails, because this pod of the mesh has no rules.
			env.source.err, env.source.pod = nil, readPod(t, "sidecar")
			if e := env.call("CHECK", c); e == nil || e.Code != 104 {
				t.Errorf("CHECK: %+v, want code 104", e)
			}
		})
	}
}

// TestLongNameLeavesRoomForTheMessage checks that the longest name leaves room for the rest of the
// message.
func TestLongNameLeavesRoomForTheMessage(t *testing.T) {
	env := newTestEnv(t, "")
	env.source.err = source.WithKind(source.Misconfigured, errors.New("no kubeconfig"))
	c := newCall(t, netnstest.New(t))
	c.args = "K8S_POD_NAMESPACE=" + strings.Repeat("n", 63) + ";K8S_POD_NAME=" +
		strings.Repeat("p", 253)
	e := env.call("ADD", c)
	const end = "… cannot be read, so it is not known whether it is in the mesh (misconfigured)"
	if e == nil || !strings.HasPrefix(e.Msg, "pod nnn") || !strings.HasSuffix(e.Msg, end) ||
		len(e.Msg) > 160 {
		t.Errorf("ADD: %+v, want a message of at most 160 bytes that ends in %q", e, end)
	}
	env.Source = plugin.System().Source
	if e := env.call("ADD", c); e == nil ||
		!strings.HasSuffix(e.Details, "/sluice-cni-kubeconfig: no such file or directory") {
		t.Errorf("the details do not contain the cause: %+v", e)
	}
}

// TestUnreadableNamespace covers a namespace whose labels a selector needs.
func TestUnreadableNamespace(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	env.source.namespaceErr = source.WithKind(source.Forbidden,
		errors.New("namespace shop: not allowed"))
	c := newCall(t, ns)
	c.stdin = c.configuration(`"enablement_selectors":[{"namespaceSelector":{}}]`)
	if e := env.call("ADD", c); e == nil || e.Code != 100 ||
		e.Details != "namespace shop: not allowed" {
		t.Errorf("ADD: %+v, want code 100 and the cause", e)
	}
	checkNoRules(t, ns)
}

// TestADDOfTheNodeAgentWithAnInvalidConfiguration checks that the node agent's pod starts despite
// an invalid configuration, and that the log contains an error. Other pods do not start.
func TestADDOfTheNodeAgentWithAnInvalidConfiguration(t *testing.T) {
	env := newTestEnv(t, "sidecar")
	c := newCall(t, netnstest.New(t))
	c.stdin = c.configuration(`"pod_namespace":"shop","exclude_namespace":[]`)
	if e := env.call("ADD", c); e == nil || e.Code != types.ErrInvalidNetworkConfig {
		t.Errorf("another pod: %+v, want code %d", e, types.ErrInvalidNetworkConfig)
	}
	env.stderr.Reset()
	c.args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=sluice-node-x7k2p"
	env.add(t, c)
	line := env.logLines(t)[0]
	if text, _ := line["configuration"].(string); line["level"] != "error" ||
		!strings.Contains(text, "want exclude_namespaces") {
		t.Errorf("log: %v, want an error about the configuration", line)
	}
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
}

// TestFailedADDKeepsTheRulesOfAnEarlierOne checks that a failed ADD keeps the rules and the record
// of an earlier ADD, and that a later ADD that skips the pod removes the rules.
func TestFailedADDKeepsTheRulesOfAnEarlierOne(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.add(t, c)
	before := c.record(t)
	env.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	if e := env.call("ADD", c); e == nil {
		t.Error("ADD succeeds, want an error")
	}
	checkHasRules(t, ns)
	if diff := cmp.Diff(before, c.record(t),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
	env.source.err, env.source.pod = nil, readPod(t, "not-injected")
	env.add(t, c)
	checkNoRules(t, ns)
}

// TestFailedADDRemovesTheRecordOfASkippedPod checks that a failed ADD removes the record of an
// earlier ADD that did not redirect the pod.
func TestFailedADDRemovesTheRecordOfASkippedPod(t *testing.T) {
	env := newTestEnv(t, "plain")
	c := newCall(t, netnstest.New(t))
	env.add(t, c)
	env.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	if e := env.call("ADD", c); e == nil {
		t.Error("ADD succeeds, want an error")
	}
	c.checkNoRecord(t)
}

// TestAllInvalidSettingsAreInOneError checks that all invalid settings of a pod are in one error of
// bounded length, and that the pod gets no rules.
func TestAllInvalidSettingsAreInOneError(t *testing.T) {
	env, ns := newTestEnv(t, "wrong"), netnstest.New(t)
	c := newCall(t, ns)
	e := env.call("ADD", c)
	if e == nil || e.Code != 101 || !strings.HasPrefix(e.Msg, "pod shop/"+podName+" has ") ||
		!strings.HasSuffix(e.Msg, " invalid settings") {
		t.Fatalf("ADD: %+v, want code 101 and the number of invalid settings", e)
	}
	for _, text := range []string{
		"annotation sidecar.istio.io/interceptionMode", `"tproxy" is not allowed`, "want REDIRECT",
	} {
		if !strings.Contains(e.Details, text) {
			t.Errorf("details do not contain %s: %s", text, e.Details)
		}
	}
	if len(e.Msg) > 160 || len(e.Details) > 768 || strings.Contains(e.Msg+e.Details, "\n") {
		t.Errorf("the error is too long, or not on one line: %+v", e)
	}
	if all, _ := env.logLines(t)[0]["error_full"].(string); !strings.Contains(all,
		"variable ISTIO_DUAL_STACK of container istio-proxy") {
		t.Errorf("the log does not list all invalid settings: %s", all)
	}
	checkNoRules(t, ns)
	c.checkNoRecord(t)
}

// TestLogLineFitsTheAgentsSocket checks that even the log line about a pod whose settings are
// all long and invalid fits into a request to the node agent.
func TestLogLineFitsTheAgentsSocket(t *testing.T) {
	env := newTestEnv(t, "annotations")
	// Quotes have the longest encoding: they are escaped in the error, and again in JSON.
	longest := strings.Repeat(strings.Repeat(`"`, 64)+",", 20)
	for name := range env.source.pod.Metadata.Annotations {
		env.source.pod.Metadata.Annotations[name] = longest
	}
	validation, proxy := &env.source.pod.Spec.InitContainers[0], &env.source.pod.Spec.InitContainers[1]
	validation.Args, proxy.SecurityContext = nil, nil // they would take precedence over variables
	for _, name := range []string{
		"INBOUND_CAPTURE_PORT", "INBOUND_TUNNEL_PORT", "PROXY_UID", "PROXY_GID",
		"ISTIO_INBOUND_TPROXY_MARK",
		"ISTIO_INBOUND_TPROXY_ROUTE_TABLE", "ISTIO_OUTBOUND_OWNER_GROUPS",
		"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
		"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "REDIRECT_DNS", "CAPTURE_ALL_DNS", "DROP_INVALID",
		"DUAL_STACK",
	} {
		proxy.Env = append(proxy.Env, decide.EnvVar{Name: name, Value: longest})
	}
	if e := env.call("ADD", newCall(t, netnstest.New(t))); e == nil || e.Code != 101 {
		t.Errorf("ADD: %+v, want code 101", e)
	}
	env.agent.checkLineFits(t)
}

// TestLogLineOfTheLongestErrorFitsTheAgentsSocket checks that the log line fits even if every
// character of an error has the longest encoding.
func TestLogLineOfTheLongestErrorFitsTheAgentsSocket(t *testing.T) {
	env, _, c := newAmbientTestEnv(t)
	env.agent.enroll = func(source.Ref, []netip.Addr, int) (*agent.Enrollment, error) {
		return nil, errors.New(strings.Repeat("\x01", agent.MaxRequest))
	}
	if e := env.call("ADD", c); e == nil {
		t.Error("ADD succeeds, want an error")
	}
	env.agent.checkLineFits(t)
}

// checkLineFits fails the test if the first log line does not fit into a request to the agent.
func (a *agentRecorder) checkLineFits(t *testing.T) {
	t.Helper()
	line := strings.TrimRight(a.lines[0], "\n")
	if _, err := agent.AppendJSON(nil,
		agent.Request{Version: agent.Version, Verb: agent.NotifyLog, Line: line},
		agent.MaxRequest); err != nil {
		t.Errorf("the request with the log line of %d bytes is too long: %v", len(line), err)
	}
}

// TestADDRejects checks the error and the log line for each kind of invalid input.
func TestADDRejects(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *sandboxCall)
		code   uint
		text   string
	}{
		{
			"a configuration with invalid fields", func(c *sandboxCall) {
				c.stdin = c.configuration(`"backend":"ebpf"`, `"api_budget":"1h"`)
			},
			types.ErrInvalidNetworkConfig,
			`the plugin's configuration has 2 invalid fields; api_budget: "1h" is not allowed: want a duration`,
		},
		{
			"input that is not a configuration", func(c *sandboxCall) { c.stdin = `[]` },
			types.ErrDecodingFailure, "the plugin's configuration cannot be read",
		},
		{
			"CNI_ARGS without pairs", func(c *sandboxCall) { c.args = "K8S_POD_NAME" },
			types.ErrInvalidEnvironmentVariables,
			`CNI_ARGS: "K8S_POD_NAME" is not a pair KEY=VALUE`,
		},
		{
			"a container id that is a path", func(c *sandboxCall) { c.id = "../x" },
			types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID or CNI_IFNAME is invalid",
		},
		{
			"a namespace that does not exist", func(c *sandboxCall) { c.netns = "/run/netns/gone" },
			types.ErrInvalidNetNS, "the network namespace of the pod cannot be opened",
		},
		{
			"the host's own namespace", func(c *sandboxCall) { c.netns = "/proc/self/ns/net" },
			types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the host",
		},
		{
			"an invalid result", func(c *sandboxCall) {
				c.prevResult = `"none"`
				c.stdin = c.configuration()
			},
			types.ErrInvalidNetworkConfig, "the previous plugin's result is invalid",
		},
		{
			"an invalid address", func(c *sandboxCall) {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.1"}]}`
				c.stdin = c.configuration()
			},
			types.ErrInvalidNetworkConfig, `prevResult: ips[0].address: "10.0.0.1" is invalid`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			env.Backend = func(compat.BackendName) (compat.Backend, error) {
				panic("a backend was requested")
			}
			c := newCall(t, ns)
			tc.change(&c)
			e := env.call("ADD", c)
			if e == nil || e.Code != tc.code || !strings.Contains(e.String(), tc.text) {
				t.Errorf("ADD: %+v, want code %d and %q", e, tc.code, tc.text)
			}
			if env.stdout.Len() > 0 {
				t.Errorf("standard output: %q, want none", env.stdout.String())
			}
			if lines := env.logLines(t); len(lines) != 1 || lines[0]["msg"] != "ADD" ||
				lines[0]["code"] != float64(tc.code) || lines[0]["decision"] == nil {
				t.Errorf("log: %v, want one line with code %d and a decision", lines, tc.code)
			}
		})
	}
}

// TestPodsStartWithoutAWritableDirectory checks that pods start if neither the log file nor the
// record can be written, and that standard error contains the error of the record.
func TestPodsStartWithoutAWritableDirectory(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, "/proc/nowhere"} {
		c.runDir = dir
		c.stdin = c.configuration()
		env.stderr.Reset()
		if got := env.add(t, c); got != c.prevResult {
			t.Errorf("result: %s, want the previous one", got)
		}
		checkHasRules(t, ns)
		if text := env.stderr.String(); !strings.Contains(text, "record_error") {
			t.Errorf("the log does not contain record_error: %s", text)
		}
	}
}

// TestConcurrentADDsAreSeparate checks that concurrent ADDs have separate results, records and
// rules.
func TestConcurrentADDsAreSeparate(t *testing.T) {
	const pods = 20
	runDir := t.TempDir()
	var group sync.WaitGroup
	for i := range pods {
		ns := netnstest.New(t)
		c := newCall(t, ns)
		c.id, c.runDir = fmt.Sprintf("%064x", i+1), runDir
		c.stdin = c.configuration()
		env := newTestEnv(t, "sidecar")
		group.Go(func() {
			if e := env.call("ADD", c); e != nil {
				t.Errorf("ADD %d: %v", i, e)
			}
			if got := env.stdout.String(); got != c.prevResult {
				t.Errorf("ADD %d: result %s, want the previous one", i, got)
			}
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK %d: %v", i, e)
			}
		})
	}
	group.Wait()
	if all, err := recordtest.List(record.In(runDir)); err != nil || len(all) != pods {
		t.Errorf("%d records, error %v; want %d", len(all), err, pods)
	}
	data, err := os.ReadFile(filepath.Join(runDir, "sluice-cni.log"))
	if lines := strings.Count(string(data), "\n"); err != nil || lines != 2*pods {
		t.Errorf("%d lines in the log, error %v; want %d", lines, err, 2*pods)
	}
	for text := range strings.Lines(string(data)) {
		if !json.Valid([]byte(text)) {
			t.Errorf("the log line %q is not JSON", text)
		}
	}
}
