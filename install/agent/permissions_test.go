package agent_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/rbactest"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const (
	startupTaint = `{"effect":"NoSchedule","key":"cni.istio.io/not-ready"}`
	otherTaint   = `{"effect":"NoSchedule","key":"dedicated","value":"gpu"}`
)

// addTaints adds a start-up taint, which the agent must remove, and a taint that it must keep.
func (tn *testNode) addTaints() {
	tn.SetTaints("["+startupTaint+","+otherTaint+"]", 0)
	tn.env["SLUICE_STARTUP_TAINT"] = "cni.istio.io/not-ready"
}

// TestNodeIsNotReadyWithoutAPermission checks that the plugin is not inserted if every pod would
// fail because of a missing permission. In any case the node is not ready and keeps its taint, and
// the reasons contain the API server's message about the permission. The node is ready soon after
// the permission is granted.
func TestNodeIsNotReadyWithoutAPermission(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // mostly waits
	for _, row := range []struct {
		name, serve string
		forbidden   []string
		missing     []string // the verbs in the readiness reasons
		inserted    bool
	}{
		{"all permissions are missing", "true", []string{"get", "list", "watch"}, []string{"get", "list"}, false},
		{
			"all permissions are missing, and the agent does not serve the socket", "false",
			[]string{"get", "list", "watch"},
			[]string{"get"},
			false,
		},
		{
			"only get is permitted, so that each requested pod is fetched", "true",
			[]string{"list", "watch"},
			[]string{"list"},
			true,
		},
		{
			"only get is permitted, and only the audit fails, because there is no socket", "false",
			[]string{"list", "watch"},
			[]string{"list"},
			true,
		},
		{"watch is not permitted", "true", []string{"watch"}, []string{"watch"}, true},
		{
			"get is not permitted, so that only watched pods are known", "true",
			[]string{"get"},
			[]string{"get"},
			true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // errors are retried after seconds
			tn := newTestNode(t)
			tn.addTaints()
			tn.env["SLUICE_SERVE"] = row.serve
			tn.ForbidPods(row.forbidden...)
			r := tn.run(nil)
			want := []string{"bridge"}
			if row.inserted {
				want = append(want, "sluice-cni")
			}
			r.until("the missing permissions are reported", func() bool {
				text := r.reasons(observe.Permissions)
				unnamed := func(verb string) bool {
					return !strings.Contains(text, "cannot "+verb+" resource ")
				}
				return slices.Equal(tn.chain(), want) && strings.HasPrefix(text, "false ") &&
					!slices.ContainsFunc(row.missing, unnamed)
			})
			r.until("an event about the missing permission is sent", func() bool {
				return tn.lastEvent() == "RightsMissing"
			})
			if diff := cmp.Diff(want, tn.chain()); diff != "" {
				t.Errorf("chain (-want +got):\n%s", diff)
			}
			if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 503 {
				t.Errorf("/readyz without a permission: %d %s, want 503", code, text)
			}
			if got := tn.Taints(); got != "["+startupTaint+","+otherTaint+"]" {
				t.Errorf("taints without a permission: %s, want all", got)
			}
			tn.ForbidPods()
			r.waitReady()
			r.until("the start-up taint is removed", func() bool { return tn.Taints() == "["+otherTaint+"]" })
			if diff := cmp.Diff([]string{"bridge", "sluice-cni"}, tn.chain()); diff != "" {
				t.Errorf("chain (-want +got):\n%s", diff)
			}
			r.until("an event about the end of the problem is sent", func() bool {
				return tn.lastEvent() == "Installed"
			})
			r.end()
		})
	}
}

// TestReadyOnceAllPermissionsAreKnown checks that the node is not ready while it is unknown whether
// the agent may watch pods, although the kubeconfig exists. The node must not become ready too
// early, because its start-up taint is not restored.
func TestReadyOnceAllPermissionsAreKnown(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	releases := []func(){tn.HoldPods("list"), tn.HoldPods("watch")}
	r := tn.run(nil)
	r.until("the plugin is inserted", func() bool {
		return slices.Contains(tn.chain(), "sluice-cni") &&
			strings.HasPrefix(r.reasons(observe.Configuration), "true")
	})
	if text := r.reasons(observe.Permissions); r.readiness().Ready ||
		text != "false the node's pods have not been requested yet" {
		t.Errorf("the part permissions is %s; want it not ready, because no pods were requested", text)
	}
	for _, release := range releases {
		release()
	}
	r.waitReady()
	r.end()
}

// TestTaintStaysUntilThePluginsPermissionIsKnown checks that the taint is kept while it is unknown
// whether the plugin may read pods, although the pods of the node are listed. A taint that was
// removed too early would not be restored.
func TestTaintStaysUntilThePluginsPermissionIsKnown(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.addTaints()
	release := tn.HoldPods("get")
	defer release()
	r := tn.run(nil)
	r.until("the node's pods are served", func() bool {
		return slices.Contains(tn.chain(), "sluice-cni") &&
			strings.HasPrefix(r.reasons(observe.Socket), "true") &&
			strings.HasPrefix(r.reasons(observe.Configuration), "true")
	})
	if text := r.reasons(observe.Permissions); text != "false the agent has not checked yet whether the plugin may read pods" {
		t.Errorf("the part permissions is %s; want it not ready, because the permission was not checked", text)
	}
	tn.ForbidPods("get")
	release()
	r.until("the missing permission is reported", func() bool {
		return strings.Contains(r.reasons(observe.Permissions), "cannot get resource ")
	})
	if got := tn.Taints(); got != "["+startupTaint+","+otherTaint+"]" {
		t.Errorf("taints without the permission: %s, want all", got)
	}
	r.end()
}

// TestSocketIsNotReadyWithRevokedPermissions checks that the socket is no longer ready after the
// permissions were revoked, although the agent still has the cached pods.
func TestSocketIsNotReadyWithRevokedPermissions(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // the test waits for seconds
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	tn.ForbidPods("get", "list", "watch")
	tn.ForgetHistory() // ends the watch, like its timeout
	r.until("the node is not ready", func() bool { return !r.readiness().Ready })
	r.until("the socket is not ready", func() bool {
		return strings.HasPrefix(r.reasons(observe.Socket),
			"false the agent cannot watch the node's pods: ")
	})
	tn.ForbidPods()
	r.waitReady()
	r.end()
}

// TestNodeStaysReadyDuringAnOutage checks that a node whose pods were listed stays ready while the
// API server is unavailable: without an API server no new pods are bound to the node.
func TestNodeStaysReadyDuringAnOutage(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // the test waits for seconds
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	tn.Stop()
	r.until("the outage is reported", func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return strings.Contains(text, "\nsluice_events_lost_total{source=\"pods\"} 1\n")
	})
	if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 200 ||
		!strings.Contains(text, "[+] socket") {
		t.Errorf("/readyz during the outage: %d %s; want 200 and a ready socket", code, text)
	}
	r.end()
}

// TestRequestsArePermitted checks that the agent and the plugin send only requests that the chart's
// roles permit, and that each permission is used, except the ones that are rarely needed.
func TestRequestsArePermitted(t *testing.T) {
	netnstest.RequireRoot(t)
	for _, c := range rbactest.Configurations() {
		if c.Environment == nil {
			continue
		}
		t.Run(c.Reason, func(t *testing.T) {
			t.Parallel() // mostly waits
			tn := newTestNode(t)
			maps.Copy(tn.env, c.Environment)
			tn.SetTaints("["+startupTaint+"]", 0)
			// The pod web started without the plugin.
			tn.addNetNS()
			tn.cacheResult("web", "1")
			tn.Put(`{kind: Namespace, metadata: {name: default, labels: {istio.io/dataplane-mode: ambient}}}`)
			if tn.env["AMBIENT_ENABLED"] == "true" {
				tn.env["ZTUNNEL_UDS_ADDRESS"] = tn.path("z/z.sock")
				tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(netnstest.New(t))
				tn.Put(`
metadata: {name: web, uid: "1"}
spec: {nodeName: node-1, containers: [{name: app}]}
status: {phase: Running, podIP: 10.1.0.7}`)
			} else {
				tn.Put(`
metadata: {name: web, uid: "1", annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status:
  phase: Pending
  podIP: 10.1.0.7
  initContainerStatuses: [{name: istio-validation, lastState: {terminated: {exitCode: 126}}}]`)
			}
			// A second pod is static, so that it is labeled and not deleted.
			if tn.env["REPAIR_DELETE_PODS"] == "true" && tn.env["REPAIR_LABEL_PODS"] == "true" {
				static := netnstest.NewPod(t)
				err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), static.FD()), tn.path("netns/cni-2"))
				if err != nil {
					t.Fatal(err)
				}
				tn.writeFile("cache/results/net-c2-eth0", `{"kind": "cniCacheV1", "containerId": "c2",
					"ifName": "eth0", "netns": "/var/run/netns/cni-2", "cniArgs": [["K8S_POD_NAMESPACE", "default"],
					["K8S_POD_NAME", "static"], ["K8S_POD_UID", "2"]]}`)
				tn.Put(`
metadata:
  {name: static, uid: "2", annotations: {sidecar.istio.io/status: "{}", kubernetes.io/config.mirror: "2"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status:
  phase: Pending
  podIP: 10.1.0.7
  initContainerStatuses: [{name: istio-validation, lastState: {terminated: {exitCode: 126}}}]`)
			}
			r := tn.run(nil)
			r.waitReady()
			if tn.env["AMBIENT_ENABLED"] == "true" {
				ztunneltest.Start(t, tn.path("z/z.sock"), nil)
			}
			unrequested := func(exceptions ...string) []string {
				return slices.DeleteFunc(c.Kinds(), func(kind string) bool {
					return slices.Contains(exceptions, kind) || tn.countRequests(kind) > 0
				})
			}
			// Objects are listed only if the API server does not stream lists, and events are sent
			// only about problems. The agent reads the DaemonSet and the node at its end.
			rare := []string{"list pods", "list namespaces", "create events", "patch events"}
			r.until("the permissions are used", func() bool {
				if slices.Contains(c.Kinds(), "watch namespaces") {
					_, _ = tn.client().Namespace(t.Context(), "default") // as the plugin does
				}
				return len(unrequested(append(rare, "get daemonsets", "get nodes")...)) == 0
			})
			r.end()
			if left := unrequested(rare...); len(left) > 0 {
				t.Errorf("permissions without requests: %q, want none", left)
			}
			for _, request := range tn.Requests() {
				if !slices.Contains(c.Kinds(), request.Kind()) {
					t.Errorf("the agent sends %q, which the roles do not permit: %q", request.Kind(), c.Kinds())
				}
			}
		})
	}
}
