package agent_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
)

// status requests the status of the node from the agent, like the command rules status.
func (r *running) status() *protocol.Status {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	s, err := protocol.Caller{Socket: protocol.SocketIn(r.path("run"))}.Status(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// topic formats a topic as one text: state, facts and remedy.
func topic(s *protocol.Status, name string) string {
	for _, t := range s.Topics {
		if t.Name == name {
			return string(t.State) + ": " + strings.Join(t.Facts, "; ") + " | " + t.Next
		}
	}
	return ""
}

// TestStatusContainsProblemsAndRemedies checks that the status contains chain, plugin, API server,
// socket, pods, drift and conflicts with their problems and remedies, and the latest errors.
func TestStatusContainsProblemsAndRemedies(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.addRedirectedPod()
	for variable, value := range map[string]string{
		"SLUICE_MOUNTED_PROC_DIR": "/proc", "SLUICE_HOST_NET_DIR": tn.path("conf"),
		"SLUICE_HOST_BIN_DIR": tn.path("bin"),
	} {
		tn.env[variable] = value
	}
	r := tn.run(nil)
	r.waitReady()
	r.until("the pod is counted", func() bool { return r.status().Pods["unknown"] == 1 })
	s := r.status()
	if !s.Ready || !s.Healthy() || s.Node != "node-1" || s.Version != "test" {
		t.Errorf("the status is %+v, want a healthy node-1 with version test", s)
	}
	for name, want := range map[string]string{
		"kernel":      "ok: it supports the rules with backend nft | ",
		"chain":       "ok: the runtime uses 10-net.conflist, which had these plugins: bridge",
		"plugin":      "ok: " + tn.path("bin/sluice-cni"),
		"permissions": "ok:  | ",
		"api":         "ok: the token expires at ",
		"socket":      "ok:  | ",
		"pods":        "unknown: 1 unknown | see the events of the pods; pods whose network namespace is not found",
		"drift":       "ok: none since the agent started | ",
		"conflicts":   "ok: none since the agent started | ",
	} {
		if got := topic(s, name); !strings.HasPrefix(got, want) {
			t.Errorf("the topic %s is %q, want the prefix %q", name, got, want)
		}
	}
	if err := os.Remove(tn.path("bin/bridge")); err != nil {
		t.Fatal(err)
	}
	r.until("it is unknown whether the runtime finds the plugin", func() bool {
		s = r.status()
		got := topic(s, "plugin")
		return s.Ready && strings.HasPrefix(got, "unknown: ") &&
			strings.Contains(got, "none of the other plugins in 10-net.conflist (bridge)") &&
			strings.Contains(got, "set cniBinDir")
	})
	if err := os.Remove(tn.path("conf/10-net.conflist")); err != nil {
		t.Fatal(err)
	}
	r.until("the node is not ready", func() bool { return !r.status().Ready })
	r.until("the status contains an error", func() bool { return len(r.status().Errors) > 0 })
	s = r.status()
	if got := topic(s, "chain"); !strings.HasPrefix(got, "problem: ") ||
		!strings.Contains(got, "NoNetworkConfiguration") || s.Healthy() {
		t.Errorf("the topic chain is %q, healthy %v; want the problem NoNetworkConfiguration", got, s.Healthy())
	}
	if e := s.Errors[0]; e.Level != "error" ||
		!strings.Contains(e.Message, "NoNetworkConfiguration") {
		t.Errorf("the last error is %+v, want NoNetworkConfiguration", e)
	}
	r.end()
}

// TestStatusDoesNotCallUnauditedPodsCorrect checks that the status does not call pods correct whose
// rules are not compared.
func TestStatusDoesNotCallUnauditedPodsCorrect(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	tn.addRedirectedPod()
	tn.env["SLUICE_AUDIT"] = "false"
	r := tn.run(nil)
	r.waitReady()
	if got := topic(r.status(), "pods"); !strings.HasPrefix(got, "off: ") ||
		!strings.Contains(got, "audit.enabled is false") {
		t.Errorf("the topic pods is %q, want off, because audit.enabled is false", got)
	}
	r.until("the topic runtime is unknown, because the pod's sandbox is not found", func() bool {
		got := topic(r.status(), "runtime")
		return strings.HasPrefix(got, "unknown: ") && strings.Contains(got, "(number of pods: 1)")
	})
	tn.DeletePod("default", "web")
	r.until("the topic runtime is ok, because no pod is left", func() bool {
		return topic(r.status(), "runtime") == "ok:  | "
	})
	r.end()

	tn.env["REPAIR_REPAIR_PODS"] = "false"
	r = tn.run(nil)
	r.waitReady()
	if got := topic(r.status(), "runtime"); !strings.HasPrefix(got, "unknown: ") ||
		!strings.Contains(got, "repair.repairPods are false") {
		t.Errorf("the topic runtime is %q, want unknown, because no pod is examined", got)
	}
	r.end()
}

// TestNodeIsNotHealthyWhileAPodLacksRules checks that the node is not healthy while a pod lacks its
// rules.
func TestNodeIsNotHealthyWhileAPodLacksRules(t *testing.T) {
	netnstest.RequireRoot(t)
	tn := newTestNode(t)
	ns, _ := tn.addSandbox(tn.addRedirectedPod())
	tn.env["SLUICE_AUDIT_REPAIR"] = "false"
	r := tn.run(nil)
	r.waitReady()
	r.until("the pod is redirected", func() bool { return topic(r.status(), "pods") == "ok: 1 redirected | " })
	if backend, err := compat.Choose(compat.BackendNFT); err != nil {
		t.Fatal(err)
	} else if _, err := backend.Remove(ns); err != nil {
		t.Fatal(err)
	}
	r.until("the pod without rules is a problem", func() bool {
		s := r.status()
		return strings.HasPrefix(topic(s, "pods"), "problem: 1 unprotected | ") && !s.Healthy() &&
			strings.HasPrefix(topic(s, "drift"), "ok: since the agent started: 1 absent | ")
	})
	r.end()
}
