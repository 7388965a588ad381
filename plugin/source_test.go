package plugin_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestPodFromTheAPIServerIsReportedToTheAgent checks that the plugin sends a pod to the agent if
// the agent could not answer, and only the API server returned the pod.
func TestPodFromTheAPIServerIsReportedToTheAgent(t *testing.T) {
	netnstest.RequireRoot(t) // the agent must run as root
	server := apiservertest.Start(t)
	server.Put(`{"metadata":{"namespace":"default","name":"web","uid":"a"}}`)
	requests := make(chan agent.Request, 2)
	socket := agenttest.Listen(t, func(c *net.UnixConn) {
		var r agent.Request
		text, err := agent.ReadFrame(c, agent.MaxRequest)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Errorf("request %s, error %v", text, err)
		}
		requests <- r
	})
	runDir := t.TempDir()
	link := agent.SocketIn(runDir)
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	s := plugin.System().Source(&config.Config{
		RunDir: runDir, Kubeconfig: server.Kubeconfig(),
		APIBudget: 5 * time.Second, APITryTimeout: 5 * time.Second,
	})
	defer s.Close()
	ref := source.Ref{Namespace: "default", Name: "web", UID: "a"}
	if pod, err := s.Pod(t.Context(), ref); err != nil || pod.Metadata.UID != "a" {
		t.Fatalf("Pod returns %+v, error %v, want the pod with UID a", pod, err)
	}
	if r := <-requests; r.Verb != agent.GetPod {
		t.Errorf("the first request has the verb %q, want %q", r.Verb, agent.GetPod)
	}
	r := <-requests
	var pod struct{ Metadata struct{ UID string } }
	err := json.Unmarshal(r.Pod, &pod)
	if r.Verb != agent.NotifyPod || err != nil || pod.Metadata.UID != "a" {
		t.Errorf("the second request has the verb %q and the pod %s, want %q and the pod with UID a",
			r.Verb, r.Pod, agent.NotifyPod)
	}
}
