package report

import (
	"fmt"
	"strconv"
	"strings"
)

// IDs of the rows that the extrapolation uses, and names of the entries for the plugin with and
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
	// watchEvents is the number of watch events during the life of a pod: bound to the node,
	// containers creating, address known, init containers done, ready, deletion requested, not
	// ready, deleted.
	watchEvents = 8
)

// pluginCost is the cost of a CNI plugin and its agent for one pod.
type pluginCost struct {
	name string
	// requests is the number of GET requests for the pod at ADD. Each uses a new TLS connection.
	requests int
	// addCPU and delCPU are the CPU times of ADD and DEL in seconds.
	addCPU, delCPU float64
}

// extrapolation renders the extrapolation of the measured costs to larger nodes and clusters.
func extrapolation(r Results) string {
	costs := pluginCosts(r)
	if costs == nil {
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
	b.WriteString(costTable("a node", nodePods, r.Pod.Bytes, costs))
	b.WriteString("\n")
	b.WriteString(costTable("the cluster", nodePods*clusterNodes, r.Pod.Bytes, costs))
	return b.String()
}

// pluginCosts returns the costs of istio-cni, in its fastest mode, and of Sluice, with and without
// an agent. It returns nil if one of them was not measured.
func pluginCosts(r Results) []pluginCost {
	add, del := r.Row(AddRow), r.Row(DelRow)
	if add == nil || del == nil || r.Pod.Bytes == 0 {
		return nil
	}
	// costOf returns nil if ADD or DEL of the plugin was not measured.
	costOf := func(name string, requests int) *pluginCost {
		addEntry, delEntry := add.Entry(name), del.Entry(name)
		if addEntry == nil || delEntry == nil {
			return nil
		}
		return &pluginCost{
			name, requests, addEntry.Values[CPU].Median, delEntry.Values[CPU].Median,
		}
	}
	withAgent, withoutAgent := costOf(WithAgent, 0), costOf(WithoutAgent, 1)
	var fastestPeer *pluginCost
	for _, e := range add.Entries {
		if e.Kind != Peer {
			continue
		}
		peer := costOf(e.Name, 1)
		if peer != nil && (fastestPeer == nil || peer.addCPU < fastestPeer.addCPU) {
			fastestPeer = peer
		}
	}
	if withAgent == nil || withoutAgent == nil || fastestPeer == nil {
		return nil
	}
	return []pluginCost{*fastestPeer, *withAgent, *withoutAgent}
}

// costTable returns the table of a restart of all pods of the scope, with a column for each plugin.
func costTable(scope string, pods, podBytes int, costs []pluginCost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| restart of %s, %s pods | arithmetic |", scope, thousands(pods))
	for _, c := range costs {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(costs)) + "\n")
	writeLine := func(description, arithmetic string, value func(pluginCost) string) {
		fmt.Fprintf(&b, "| %s | %s |", description, arithmetic)
		for _, c := range costs {
			fmt.Fprintf(&b, " %s |", value(c))
		}
		b.WriteString("\n")
	}
	n := float64(pods)
	writeLine("requests for pods", fmt.Sprintf("%s × GETs of an ADD", thousands(pods)),
		func(c pluginCost) string { return thousands(pods * c.requests) })
	writeLine("TLS connections of these requests",
		fmt.Sprintf("%s × connections of an ADD", thousands(pods)),
		func(c pluginCost) string { return thousands(pods * c.requests) })
	writeLine("bytes of the responses", "requests × size of a pod",
		func(c pluginCost) string { return size(n * float64(c.requests*podBytes)) })
	writeLine("bytes watched",
		fmt.Sprintf("%s × %d events × size of a pod", thousands(pods), watchEvents),
		func(pluginCost) string { return size(n * watchEvents * float64(podBytes)) })
	writeLine("CPU time of ADD and DEL", fmt.Sprintf("%s × (ADD + DEL)", thousands(pods)),
		func(c pluginCost) string {
			return fmt.Sprintf("%s: %s × (%s + %s)", seconds(n*(c.addCPU+c.delCPU)),
				thousands(pods), duration(c.addCPU), duration(c.delCPU))
		})
	if pods > nodePods {
		writeLine("requests per second", fmt.Sprintf("requests / %d h", rolloutHours),
			func(c pluginCost) string {
				return threeDigits(n * float64(c.requests) / (rolloutHours * 3600))
			})
	}
	return b.String()
}

// seconds formats a number of seconds. From two hours on, the unit is hours.
func seconds(s float64) string {
	if s < 2*3600 {
		return duration(s)
	}
	return threeDigits(s/3600) + " h"
}

// thousands formats a number with a comma before each group of three digits.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
