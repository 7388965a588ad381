package agent

import (
	"fmt"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// ambientPart reports whether the agent can enroll a pod in ambient mode for the plugin. It does
// not require a ztunnel, which may be installed after the agent.
func (a *Agent) ambientPart() observe.Part {
	part := observe.Part{Name: observe.Ambient, Ready: true}
	if !a.server.Listening() {
		part.Fail("the plugin cannot reach the agent, which enrolls pods in ambient mode")
	}
	if !a.ambient.pods.Restored() {
		part.Fail("the node's pods have not been listed yet")
	}
	if err := a.ambient.guard.State().Blocked(); err != nil {
		part.Fail("the node's rules for probes cannot be read or written: " + err.Error())
	}
	return part
}

// measureAmbient sets the gauges of ambient mode.
func (a *Agent) measureAmbient() {
	for state, n := range a.ambient.pods.Count() {
		a.metrics.Set(metrics.AmbientPods(string(state)), float64(n))
	}
	host := a.ambient.guard.State()
	a.metrics.SetBool(metrics.HostRulesInPlace(), host.InPlace())
	s := a.ambient.ztunnels.State()
	a.metrics.Set(metrics.ZtunnelPodsUnacknowledged(), float64(len(s.Pods)-s.Acknowledged()))
}

// ambientTopics returns the topics of ambient mode.
func (a *Agent) ambientTopics(part observe.Part, ready bool) []agent.Topic {
	socket := a.options.Settings.Text("ZTUNNEL_UDS_ADDRESS")
	return []agent.Topic{
		ambientPodsTopic(topicOf(part, ready), a.ambient.pods.Count(), a.ambient.pods.Pending()),
		ztunnelTopic(a.ambient.ztunnels.State(), socket, time.Now()),
		hostRulesTopic(a.ambient.guard.State(), time.Now()),
	}
}

// maxShownPods is the maximum number of pods that a topic names.
const maxShownPods = 5

func ambientPodsTopic(
	t agent.Topic, count map[ambient.State]int, pending []ambient.PendingPod,
) agent.Topic {
	for _, s := range ambient.States() {
		if count[s] > 0 {
			t.Facts = append(t.Facts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	if t.State != agent.TopicOK {
		return t
	}
	failed := 0
	for _, p := range pending {
		if p.Err == nil {
			continue // the pod is being enrolled
		}
		if failed++; failed <= maxShownPods {
			t.Facts = append(t.Facts, fmt.Sprintf("%s is not enrolled: %v", p.Ref, p.Err))
		}
	}
	if failed > maxShownPods {
		t.Facts = append(t.Facts,
			fmt.Sprintf("and %d more pods are not enrolled", failed-maxShownPods))
	}
	if failed > 0 {
		t.State = agent.TopicProblem
		t.Next = "see the topics ztunnel and host and the events of the pods; " +
			"the agent tries again by itself"
	}
	return t
}

// lateAcknowledgement is the time after which a missing acknowledgement is a problem.
const lateAcknowledgement = 5 * time.Second

func ztunnelTopic(s ztunnel.State, socket string, now time.Time) agent.Topic {
	t := agent.Topic{Name: "ztunnel", State: agent.TopicOK}
	switch {
	case !s.Listening:
		t.State = agent.TopicProblem
		t.Facts = []string{"ztunnel cannot connect: the agent does not listen on " + socket}
		t.Next = "see the errors below: " +
			"the directory of the socket must be a writable directory of the node"
		return t
	case len(s.Connections) == 0:
		t.State = agent.TopicProblem
		t.Facts = []string{
			"no ztunnel is connected to " + socket + ": pods in ambient mode do not start",
		}
		t.Next = "check that a pod of the DaemonSet ztunnel runs on this node " +
			"and mounts the directory of the socket"
		return t
	}
	t.Facts = append(t.Facts, fmt.Sprintf("%d connected; %d of %d pods acknowledged",
		len(s.Connections), s.Acknowledged(), len(s.Pods)))
	for _, c := range s.Connections {
		name := fmt.Sprintf("connection %d", c.ID)
		if c.PID != 0 {
			name = fmt.Sprintf("pid %d", c.PID)
		}
		if c.Unacknowledged != "" && now.Sub(c.SentAt) > lateAcknowledgement {
			t.State = agent.TopicProblem
			t.Facts = append(t.Facts, fmt.Sprintf(
				"%s has not acknowledged %q for %s, with %d more in the queue", name, c.Unacknowledged,
				now.Sub(c.SentAt).Round(time.Second), c.Queued))
			t.Next = "see the log of ztunnel, and whether it has reached a limit, " +
				"for example of open files"
		}
		if c.LastError != "" {
			t.Facts = append(t.Facts, name+" refused: "+c.LastError)
		}
	}
	return t
}

func hostRulesTopic(s hostrules.State, now time.Time) agent.Topic {
	t := agent.Topic{Name: "host", State: agent.TopicOK}
	switch {
	case s.Err != nil:
		t.State = agent.TopicProblem
		t.Facts = []string{"the node's rules for probes are broken: " + s.Err.Error()}
		t.Next = "probes of pods in ambient mode may fail; rules doctor --node looks for the cause"
		return t
	case !s.InPlace():
		t.State = agent.TopicUnknown
		t.Facts = []string{"the node's rules for probes have not been compared yet"}
		return t
	}
	t.Facts = []string{
		fmt.Sprintf(
			"the node's rules for probes are in place (%s, %d pods), compared %s ago",
			s.Backend, s.Pods, now.Sub(s.ComparedAt).Round(time.Second)),
	}
	if s.KubeletErr != nil {
		t.State = agent.TopicUnknown
		t.Facts = append(t.Facts, "the kubelet is not found: "+s.KubeletErr.Error())
		t.Next = "if the kubelet has another name here, connections of user 0 count as its probes"
		return t
	}
	t.Facts = append(t.Facts, "the kubelet is "+s.Kubelet.String())
	return t
}
