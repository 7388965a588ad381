package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestAmbientTopicsContainStateFactsAndRemedy checks that each topic contains the state, the facts,
// and the remedy for a problem.
func TestAmbientTopicsContainStateFactsAndRemedy(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	pods := func(count map[ambient.State]int, pending ...ambient.PendingPod) agent.Topic {
		return ambientPodsTopic(agent.Topic{Name: "ambient", State: agent.TopicOK}, count, pending)
	}
	pending := func(name string, err error) ambient.PendingPod {
		return ambient.PendingPod{Ref: source.Ref{Namespace: "shop", Name: name, UID: name}, Err: err}
	}
	failed := errors.New("no ztunnel is connected")
	many := make([]ambient.PendingPod, 7)
	for i := range many {
		many[i] = pending("web", failed)
	}
	connected := ztunnel.ConnectionState{PID: 42, Ready: true}
	slow, refused := connected, connected
	slow.Unacknowledged, slow.SentAt, slow.Queued = "add shop/web", now.Add(-12*time.Second), 3
	refused.LastError, refused.PID, refused.ID = "add shop/web: too many open files", 0, 7
	served := []ztunnel.PodState{{UID: "a", AckedBy: 1}, {UID: "b"}}
	for _, tc := range []struct {
		topic agent.Topic
		want  string
	}{
		{pods(map[ambient.State]int{ambient.Enrolled: 3, ambient.Pending: 1}, pending("web", nil)), "ok: 3 enrolled; 1 pending | "},
		{
			pods(map[ambient.State]int{ambient.Pending: 1}, pending("web", failed)),
			"problem: 1 pending; shop/web is not enrolled: no ztunnel is connected | see the topics ztunnel and host",
		},
		{pods(nil, many...), "and 2 more pods are not enrolled"},
		{ztunnelTopic(ztunnel.State{}, "/z.sock", now), "problem: ztunnel cannot connect: the agent does not listen on /z.sock | "},
		{
			ztunnelTopic(ztunnel.State{Listening: true}, "/z.sock", now),
			"problem: no ztunnel is connected to /z.sock: pods in ambient mode do not start | check that a pod of the DaemonSet ztunnel",
		},
		{
			ztunnelTopic(ztunnel.State{Listening: true, Connections: []ztunnel.ConnectionState{connected}, Pods: served}, "", now),
			"ok: 1 connected; 1 of 2 pods acknowledged | ",
		},
		{
			ztunnelTopic(ztunnel.State{Listening: true, Connections: []ztunnel.ConnectionState{slow}}, "", now),
			`problem: 1 connected; 0 of 0 pods acknowledged; pid 42 has not acknowledged "add shop/web" for 12s, with 3 more in the queue | see`,
		},
		{
			ztunnelTopic(ztunnel.State{Listening: true, Connections: []ztunnel.ConnectionState{refused}}, "", now),
			"connection 7 refused: add shop/web: too many open files | ",
		},
		{hostRulesTopic(hostrules.State{}, now), "unknown: the node's rules for probes have not been compared yet | "},
		{
			hostRulesTopic(hostrules.State{Err: errors.New("no permission"), ComparedAt: now}, now),
			"problem: the node's rules for probes are broken: no permission | probes of pods in ambient mode may fail",
		},
		{
			hostRulesTopic(hostrules.State{ComparedAt: now.Add(-4 * time.Second), Backend: compat.BackendNFT, Pods: 5, Kubelet: hostrules.Kubelet{PID: 815}}, now),
			"ok: the node's rules for probes are in place (nft, 5 pods), compared 4s ago; the kubelet is process 815",
		},
		{
			hostRulesTopic(hostrules.State{ComparedAt: now, KubeletErr: errors.New("no process")}, now),
			"compared 0s ago; the kubelet is not found: no process | if the kubelet has another name",
		},
	} {
		got := string(tc.topic.State) + ": " + strings.Join(tc.topic.Facts, "; ") + " | " + tc.topic.Next
		if !strings.Contains(got, tc.want) {
			t.Errorf("the topic is  %s\nwant the part %s", got, tc.want)
		}
	}
}

// TestAmbientModeNeedsTheRulesOfTheNode checks that the agent is not ready while the addresses of a
// pod cannot be added to the node's rules, because its ADD would fail.
func TestAmbientModeNeedsTheRulesOfTheNode(t *testing.T) {
	a := newAgent(t, map[string]string{
		"AMBIENT_ENABLED": "true", "SLUICE_MOUNTED_PROC_DIR": t.TempDir(),
	})
	const reason = "the node's rules for probes cannot be read or written: "
	reasons := func() string { return strings.Join(a.ambientPart().Reasons, "; ") }
	if strings.Contains(reasons(), reason) {
		t.Errorf("before an attempt: %s", reasons())
	}
	err := a.ambient.guard.Replace(nil)
	if err == nil {
		t.Fatal("the rules were written without the node's /proc")
	}
	if part := a.ambientPart(); part.Ready || !strings.Contains(reasons(), reason+err.Error()) {
		t.Errorf("ready %t: %s; want false, and the error %v", part.Ready, reasons(), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.ambient.pods.Run(ended) // ends the goroutines of the queue
}

// TestAuditAndAmbientModeShareTheRuleLock checks that the audit and ambient mode do not read rules
// at the same time.
func TestAuditAndAmbientModeShareTheRuleLock(t *testing.T) {
	a := newAgent(t, map[string]string{"AMBIENT_ENABLED": "true"})
	if lock := a.auditor.RuleLock; lock == nil || lock != a.ambient.pods.RuleLock {
		t.Errorf("the audit has lock %p, ambient mode %p, want the same", lock, a.ambient.pods.RuleLock)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.ambient.pods.Run(ended) // ends the goroutines of the queue
}
