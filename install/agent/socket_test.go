package agent_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	agentclient "github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// client returns a client of the agent's socket. Each call returns a new one, because a client that
// has not received an answer in time sends no more queries.
func (tn *testNode) client() *agentclient.Client {
	return agentclient.New(agentclient.Options{
		Socket: protocol.SocketIn(tn.path("run")), Timeout: time.Minute,
	})
}

// countRequests returns the number of requests of a kind that the API server has received.
func (tn *testNode) countRequests(kind string) (n int) {
	for _, r := range tn.Requests() {
		if r.Kind() == kind {
			n++
		}
	}
	return n
}

// TestStartingPodsGetCurrentNamespaces checks that, while the watch of namespaces is interrupted,
// the plugin gets the labels of a pod's namespace from the API server. With the cached labels the
// pod could start outside the mesh.
func TestStartingPodsGetCurrentNamespaces(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // the test waits for seconds
	tn := newTestNode(t)
	tn.env["SLUICE_ENABLEMENT_SELECTORS"] = `[{"namespaceSelector":{"matchLabels":{"mesh":"on"}}}]`
	tn.Put(`{kind: Namespace, metadata: {name: default, labels: {mesh: "off"}}}`)
	r := tn.run(nil)
	r.waitReady()
	mesh := func() string {
		n, err := tn.client().Namespace(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		return n.Metadata.Labels["mesh"]
	}
	r.until("the namespace is cached", func() bool {
		before := tn.countRequests("get namespaces")
		return mesh() == "off" && tn.countRequests("get namespaces") == before
	})
	watches := tn.countRequests("watch namespaces")
	tn.Always(apiservertest.SilentWatches())
	tn.ForgetHistory()
	r.until("the namespaces are requested again", func() bool {
		return tn.countRequests("watch namespaces") > watches
	})
	tn.Put(`{kind: Namespace, metadata: {name: default, labels: {mesh: "on"}}}`)
	r.until("the plugin gets the new label", func() bool { return mesh() == "on" })
	r.end()
}

// TestPodsReportedByThePluginAreServed checks that the agent serves a pod that the plugin has read
// from the API server and reported to the agent, even if the agent's watch has not returned the pod
// and the API server has become unavailable.
func TestPodsReportedByThePluginAreServed(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // the test waits for seconds
	tn := newTestNode(t)
	r := tn.run(nil)
	r.waitReady()
	release := tn.HoldPods("watch")
	defer release()
	watches := tn.countRequests("watch pods")
	tn.ForgetHistory()
	r.until("the pods are requested again", func() bool { return tn.countRequests("watch pods") > watches })
	tn.Put(`{metadata: {name: later, uid: "2"}, spec: {nodeName: node-1, containers: [{name: app}]}}`)
	ref := source.Ref{Namespace: "default", Name: "later", UID: "2"}
	api := source.NewAPIServer(source.Options{Kubeconfig: tn.path("run/sluice-cni-kubeconfig")})
	defer api.Close()
	r.until("the plugin reads the pod", func() bool {
		_, err := tn.client().ReportPods(api).Pod(t.Context(), ref)
		return err == nil
	})
	tn.Stop()
	r.until("the socket answers", func() bool {
		pod, err := tn.client().Pod(t.Context(), ref)
		return err == nil && pod.HasUID("2")
	})
	r.end()
}
