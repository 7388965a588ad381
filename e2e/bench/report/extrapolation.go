package report

import "strconv"

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

// An extrapolation contains the computed costs.
type extrapolation struct {
	NodePods, ClusterNodes, RolloutHours, WatchEvents int
	PodSize                                           string
	Restarts                                          []restart
}

// A restart is the restart of all pods of a node or a cluster. Costs contains the cost for each
// plugin.
type restart struct {
	Scope string
	Pods  int
	Costs []restartCost
}

// A restartCost is the cost of a plugin and its agent for a restart. Requests is the number of GET
// requests for pods, and PerSecond is their rate during the rollout. Received is the size of the
// pods in the responses, and Watched is the size of the pods in watch events. CPU is the total CPU
// time, and AddCPU and DelCPU are the CPU times of one ADD and one DEL.
type restartCost struct {
	Name                                              string
	Requests                                          int
	Received, Watched, CPU, AddCPU, DelCPU, PerSecond string
}

// pluginCost is the cost of a CNI plugin and its agent for one pod.
type pluginCost struct {
	name string
	// requests is the number of GET requests for the pod at ADD. Each uses a new TLS connection.
	requests int
	// addCPU and delCPU are the CPU times of ADD and DEL in seconds.
	addCPU, delCPU float64
}

// extrapolate extrapolates the costs of the plugins to larger nodes and clusters: istio-cni in the
// mode whose ADD takes the least CPU time, and Sluice with and without an agent. It returns nil if
// one of the three plugins or the size of the pod was not measured.
func extrapolate(r Results) *extrapolation {
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
	x := &extrapolation{
		NodePods: nodePods, ClusterNodes: clusterNodes, RolloutHours: rolloutHours,
		WatchEvents: watchEvents, PodSize: size(int64(r.Pod.Bytes)),
		Restarts: []restart{
			{Scope: "a node", Pods: nodePods},
			{Scope: "the cluster", Pods: nodePods * clusterNodes},
		},
	}
	for i := range x.Restarts {
		scope := &x.Restarts[i]
		for _, c := range []*pluginCost{fastestPeer, withAgent, withoutAgent} {
			scope.Costs = append(scope.Costs, c.forPods(scope.Pods, r.Pod.Bytes))
		}
	}
	return x
}

// forPods returns the cost of a restart of a number of pods. podBytes is the size of each pod.
func (c *pluginCost) forPods(pods, podBytes int) restartCost {
	n := float64(pods)
	requests := n * float64(c.requests)
	return restartCost{
		Name: c.name, Requests: pods * c.requests,
		Received: size(requests * float64(podBytes)),
		Watched:  size(n * watchEvents * float64(podBytes)),
		CPU:      seconds(n * (c.addCPU + c.delCPU)),
		AddCPU:   duration(c.addCPU), DelCPU: duration(c.delCPU),
		PerSecond: threeDigits(requests / (rolloutHours * 3600)),
	}
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
