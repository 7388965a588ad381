package report

import (
	"fmt"
	"strings"
)

// Ids of the rows that the extrapolation uses, and names of their entries for the plugin with and
// without an agent.
const (
	AddRow       = "add"
	DelRow       = "del"
	WithAgent    = "sluice-cni"
	WithoutAgent = "sluice-cni, no agent"
)

// Assumptions of the extrapolation.
const (
	nodePods, clusterNodes = 500, 10_000
	// rolloutHours is the duration of a restart of the whole cluster.
	rolloutHours = 8
	// watchEvents is the number of events of a pod for a watcher from its binding to the node to
	// its end: bound, containers creating, address known, init containers done, ready; being
	// deleted, not ready, deleted.
	watchEvents = 8
)

// A pattern contains the requests of a CNI plugin and its agent to the API server, and the cost of
// an attachment.
type pattern struct {
	name string
	// gets are the requests for a pod at each ADD, connections the new TLS connections for them.
	gets, connections int
	addCPU, delCPU    float64
}

// extrapolation renders the extrapolation of the measured costs to larger nodes and clusters.
func extrapolation(r Results) string {
	columns := patterns(r)
	if columns == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
## Extrapolation to nodes and clusters

These values are computed, not measured, from the measured CPU time of ADD and DEL and the size of an injected pod, which is %s as JSON.
All %d pods of a node are injected, and each is replaced once, with one ADD, one DEL and %d watch events. The cluster has %s nodes, and all
of them are restarted within %d hours at an even rate. istio-cni requests the pod at each ADD in a new process, and therefore on a new TLS
connection; its agent watches the pods of the node if repair is enabled, which is the default. The agent of Sluice watches these pods too,
and provides them to the plugin over a socket; for a pod that the watch has not delivered yet, it sends one GET on an open connection.
Without the agent, the plugin of Sluice sends the same requests as istio-cni. The CPU times do not include agents and API servers.

`, size(float64(r.Pod.Bytes)), nodePods, watchEvents, thousands(clusterNodes), rolloutHours)
	b.WriteString(scale("a node", nodePods, r.Pod.Bytes, columns))
	b.WriteString("\n")
	b.WriteString(scale("the cluster", nodePods*clusterNodes, r.Pod.Bytes, columns))
	return b.String()
}

// patterns returns the patterns of istio-cni, in its fastest mode, and of Sluice, or nil unless all
// were measured.
func patterns(r Results) []pattern {
	add, del := r.Row(AddRow), r.Row(DelRow)
	if add == nil || del == nil || r.Pod.Bytes == 0 {
		return nil
	}
	newPattern := func(name string, gets int) (pattern, bool) {
		a, d := add.Entry(name), del.Entry(name)
		if a == nil || d == nil {
			return pattern{}, false
		}
		return pattern{name, gets, gets, a.Values[CPU].Median, d.Values[CPU].Median}, true
	}
	withAgent, ok1 := newPattern(WithAgent, 0)
	withoutAgent, ok2 := newPattern(WithoutAgent, 1)
	var istio pattern
	for _, e := range add.Entries {
		p, ok := newPattern(e.Name, 1)
		if ok && e.Kind == Peer && (istio.name == "" || p.addCPU < istio.addCPU) {
			istio = p
		}
	}
	if !ok1 || !ok2 || istio.name == "" {
		return nil
	}
	return []pattern{istio, withAgent, withoutAgent}
}

// scale returns the table for a number of pods.
func scale(scope string, pods, podBytes int, columns []pattern) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| restart of %s, %s pods | arithmetic |", scope, thousands(pods))
	for _, p := range columns {
		fmt.Fprintf(&b, " %s |", p.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	line := func(description, arithmetic string, value func(pattern) string) {
		fmt.Fprintf(&b, "| %s | %s |", description, arithmetic)
		for _, p := range columns {
			fmt.Fprintf(&b, " %s |", value(p))
		}
		b.WriteString("\n")
	}
	n := float64(pods)
	line("requests for pods", fmt.Sprintf("%s × GETs of an ADD", thousands(pods)),
		func(p pattern) string { return thousands(pods * p.gets) })
	line("TLS connections for them", fmt.Sprintf("%s × connections of an ADD", thousands(pods)),
		func(p pattern) string { return thousands(pods * p.connections) })
	line("bytes of the responses", "requests × size of a pod", func(p pattern) string {
		return size(n * float64(p.gets*podBytes))
	})
	line("bytes watched", fmt.Sprintf("%s × %d events × size of a pod", thousands(pods),
		watchEvents),
		func(pattern) string { return size(n * watchEvents * float64(podBytes)) })
	line("CPU time of ADD and DEL", fmt.Sprintf("%s × (ADD + DEL)",
		thousands(pods)), func(p pattern) string {
		return fmt.Sprintf("%s: %s × (%s + %s)", seconds(n*(p.addCPU+p.delCPU)), thousands(pods),
			duration(p.addCPU), duration(p.delCPU))
	})
	if pods > nodePods {
		line("requests per second", fmt.Sprintf("requests / %d h",
			rolloutHours), func(p pattern) string {
			return threeDigits(n * float64(p.gets) / (rolloutHours * 3600))
		})
	}
	return b.String()
}

// seconds formats a long time.
func seconds(s float64) string {
	if s < 2*3600 {
		return duration(s)
	}
	return threeDigits(s/3600) + " h"
}

// thousands formats a number in groups of three digits.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
