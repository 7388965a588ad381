package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// status returns the state of the node for the rules command.
func (a *Agent) status() agent.Status {
	r := a.Readiness()
	s := agent.Status{
		Node: a.options.Settings.Text("NODE_NAME"), Version: a.options.Version, Time: time.Now(),
		Ready:              r.Ready,
		Drifts:             observe.Values(a.metrics, metrics.Drifts),
		ConflictingWriters: observe.Values(a.metrics, metrics.ConflictingWrites),
	}
	if a.auditor != nil {
		a.auditor.Measure()
		s.Pods = observe.Values(a.metrics, metrics.Pods)
	}
	for _, p := range r.Parts {
		if p.Name == observe.Ambient {
			s.Topics = append(s.Topics, a.ambientTopics(p, r.Ready)...)
			continue
		}
		s.Topics = append(s.Topics, topicOf(p, r.Ready))
	}
	compared := a.options.Settings.Bool("SLUICE_AUDIT")
	s.Topics = append(s.Topics,
		podsTopic(s.Pods, a.podCache != nil && a.podCache.Synced(), compared),
		driftTopic(s.Drifts, compared),
		conflictsTopic(s.ConflictingWriters, a.node.Status().ConflictingWriters, a.reporter.hostPaths))
	for _, l := range a.options.Log.Recent() {
		s.Errors = append(s.Errors, agent.LoggedError{
			First: l.First, Last: l.Last, Count: l.Count, Level: l.Level, Message: l.Message,
			Error: l.Error,
		})
	}
	return s
}

// topicNames contains the names of topics that differ from the names of their parts of readiness.
var topicNames = map[string]string{
	observe.Binary: "plugin", observe.Configuration: "chain", observe.Kubeconfig: "api",
}

// advice contains the remedies for parts of readiness that are not ready.
var advice = map[string]string{
	observe.Kernel: "install or load the named modules; rules doctor lists the missing features",
	observe.Binary: "see the errors below for the reason why the executable could not be written: " +
		"the disk, the mount or the file's attributes",
	observe.Configuration: "check the named file and program; " +
		"the chart's value cniConfFileName selects another file",
	observe.Runtime: "restart the named pods; if it happens again, restart the container runtime, " +
		"which may use an old configuration",
	observe.Permissions: "restore the roles of the ServiceAccount (helm upgrade does); " +
		"the kubelet replaces a rejected token within ten minutes",
	observe.Kubeconfig: "check that this node can reach the API server, " +
		"and that it accepts the ServiceAccount's tokens",
	observe.Socket:  socketAdvice,
	observe.Ambient: socketAdvice,
}

const socketAdvice = "see the errors below: " +
	"the agent cannot list the node's pods, or cannot create its socket"

// topicOf returns the topic for a part of readiness. A part that is not ready is no problem while
// the node is ready: the plugin needs only its kubeconfig or the socket to read pods.
func topicOf(p observe.Part, ready bool) agent.Topic {
	t := agent.Topic{
		Name: cmp.Or(topicNames[p.Name], p.Name), State: agent.TopicOK, Facts: p.Reasons,
	}
	switch {
	case !p.Ready && !ready:
		t.State, t.Next = agent.TopicProblem, advice[p.Name]
	case !p.Ready:
		t.State, t.Next = agent.TopicUnknown, advice[p.Name]
	case p.Unknown:
		t.State = agent.TopicUnknown
	}
	return t
}

// podsTopic returns the topic for the number of pods in each state, which is empty without an
// auditor. listed is set if the node's pods have been listed, and compared if the rules of
// all pods are compared with their desired state.
func podsTopic(pods map[string]int, listed, compared bool) agent.Topic {
	t := agent.Topic{Name: "pods", State: agent.TopicOK, Facts: formatCounts(pods)}
	switch {
	case len(pods) == 0:
		t.State, t.Facts = agent.TopicOff, []string{"the pods of the node are not audited"}
	case !listed:
		t.State, t.Facts = agent.TopicUnknown, []string{"the node's pods have not been listed yet"}
	case pods["drifted"]+pods["unprotected"] > 0:
		t.State = agent.TopicProblem
		t.Next = "see the events of the pods; " +
			"rules check --pod NAMESPACE/POD lists the differences; " +
			"recreating the pod restores its rules"
	case !compared:
		t.State = agent.TopicOff
		t.Facts = append(t.Facts, "only pods that started without the plugin are audited; the rules of "+
			"the others are not compared with their desired state (audit.enabled is false)")
	case pods["unknown"] > 0:
		t.State = agent.TopicUnknown
		t.Next = "see the events of the pods; " +
			"pods whose network namespace is not found may have ended; " +
			"rules check --pod NAMESPACE/POD gives details"
	}
	return t
}

func driftTopic(drifts map[string]int, compared bool) agent.Topic {
	t := agent.Topic{
		Name: "drift", State: agent.TopicOK, Facts: []string{"none since the agent started"},
	}
	if !compared {
		t.State, t.Facts = agent.TopicOff,
			[]string{"pods are not compared with their desired state (audit.enabled is false)"}
		return t
	}
	if found := formatCounts(drifts); len(found) > 0 {
		t.Facts = []string{"since the agent started: " + strings.Join(found, ", ")}
		t.Next = "see the events of the pods for the process that changed their rules"
	}
	return t
}

// conflictsTopic returns the topic for the number of rewrites of each conflicting writer since the
// agent started, and for the present conflicting writers. hostPaths replaces mounted paths by the
// paths on the node.
func conflictsTopic(
	rewrites map[string]int, writers []node.ConflictingWriter, hostPaths *strings.Replacer,
) agent.Topic {
	t := agent.Topic{
		Name: "conflicts", State: agent.TopicOK, Facts: []string{"none since the agent started"},
	}
	if found := formatCounts(rewrites); len(found) > 0 {
		t.Facts = []string{"rewrites since the agent started: " + strings.Join(found, ", ")}
	}
	for _, w := range writers {
		t.State, t.Next = agent.TopicProblem, w.Advice
		t.Facts = append(t.Facts, hostPaths.Replace(w.String()))
	}
	return t
}

// formatCounts returns counts as text, for example "2 drifted", in the order of the names and
// without zeros.
func formatCounts(counts map[string]int) []string {
	var formatted []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 0 {
			formatted = append(formatted, fmt.Sprintf("%d %s", n, name))
		}
	}
	return formatted
}
