package agent_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// waitPodAccess adds a pod, and waits until the plugin can read it from the socket and with the
// plugin's kubeconfig.
func (r *running) waitPodAccess(name string) {
	r.t.Helper()
	r.Put(`{"metadata": {"name": "` + name + `", "uid": "` + name +
		`"}, "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]}}`)
	ref := source.Ref{Namespace: "default", Name: name, UID: name}
	r.until("the kubeconfig works", func() bool {
		// Each process of the plugin reads the kubeconfig again.
		api := source.NewAPIServer(source.Options{Kubeconfig: r.path("run/sluice-cni-kubeconfig")})
		defer api.Close()
		_, err := api.Pod(r.t.Context(), ref)
		return err == nil
	})
	r.until("the socket answers", func() bool {
		_, err := r.client().Pod(r.t.Context(), ref)
		return err == nil
	})
}

// lastMessage returns the message of the last event with the reason; empty if there is none.
func (tn *testNode) lastMessage(reason string) string {
	events := tn.Events()
	slices.Reverse(events)
	if at := slices.IndexFunc(events, func(e apiservertest.Event) bool {
		return e.Reason == reason
	}); at >= 0 {
		return events[at].Message
	}
	return ""
}

// TestAgentRecoversFromARotatedAuthority covers a rotation of the cluster's certificate authority:
// the node is not ready while the API server has a certificate of the new authority and the kubelet
// has not projected this authority. The agent needs no restart.
func TestAgentRecoversFromARotatedAuthority(t *testing.T) {
	checkRejectedCredentials(t, (*testNode).RotateAuthority,
		"does not verify the API server's certificate", "certificate")
}

// TestAgentRecoversFromARecreatedServiceAccount covers a ServiceAccount that is deleted and created
// again: the node is not ready while the API server rejects the token and the kubelet has not
// projected a new one. Afterwards the plugin gets a new kubeconfig.
func TestAgentRecoversFromARecreatedServiceAccount(t *testing.T) {
	checkRejectedCredentials(t, func(tn *testNode) { tn.RecreateAccount(time.Now().Add(-time.Minute)) },
		"rejects the agent's service account token (401), since ", "401")
}

// checkRejectedCredentials checks that an agent whose credentials are rejected is not ready, with
// the reason, until the kubelet projects new ones, and then sends an event.
func checkRejectedCredentials(t *testing.T, reject func(*testNode), reason, event string) {
	netnstest.RequireRoot(t)
	t.Parallel() // errors are retried after seconds
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	reject(tn)
	r.until("the rejected credentials are reported", func() bool { return strings.Contains(r.reasons(observe.Permissions), reason) })
	if r.readiness().Ready {
		t.Error("ready with rejected credentials")
	}
	rejected := time.Now()
	r.until("the problem has lasted for 5 s", func() bool { return time.Since(rejected) > 5*time.Second })
	tn.Project()
	r.waitReady()
	r.until("the plugin's kubeconfig is ready", func() bool {
		return strings.HasPrefix(r.reasons(observe.Kubeconfig), "true")
	})
	r.waitPodAccess("later")
	r.until("an event about the rejected credentials is sent", func() bool {
		return strings.Contains(tn.lastMessage("CredentialsRejected"), event)
	})
	r.end()
}

// TestAgentExitsIfItsTokenIsNotReplaced checks that an agent whose token the kubelet should have
// replaced exits with a reason and keeps the plugin installed. The next agent reports the exit once
// its token is accepted.
func TestAgentExitsIfItsTokenIsNotReplaced(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // errors are retried after seconds
	tn := newTestNode(t)
	// The token is valid for an hour, and the kubelet should have replaced it after 48 minutes.
	tn.RecreateAccount(time.Now().Add(-50 * time.Minute))
	api := tn.apiOptions()
	tn.replacementTimeout = time.Nanosecond
	r := tn.start(api, nil)
	r.waitReady()
	tn.RecreateAccount(time.Now().Add(-time.Minute))
	err := <-r.done
	if err == nil || !strings.Contains(err.Error(),
		"rejects the agent's service account token (401)") ||
		!strings.Contains(err.Error(), "the kubelet has not replaced it") {
		t.Errorf("the agent exited with %v, want the rejection of a token that "+
			"the kubelet has not replaced", err)
	}
	if !slices.Contains(tn.chain(), "sluice-cni") {
		t.Error("the plugin was removed")
	}
	if _, err := os.Stat(tn.path("run/agent-exits.json")); err != nil {
		t.Error(err)
	}
	tn.Project()
	r = tn.start(api, nil)
	r.waitReady()
	r.until("an event about the rejected credentials is sent", func() bool {
		return strings.HasPrefix(tn.lastMessage("CredentialsRejected"), "number of exits of the agent: 1; ")
	})
	r.end()
}
