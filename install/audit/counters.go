package audit

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// CounterMetrics selects the series of the counters of rules.
type CounterMetrics string

// The selections.
const (
	NoCounters        CounterMetrics = "none"
	NamespaceCounters CounterMetrics = "namespace" // one series for the pods of each namespace
	PodCounters       CounterMetrics = "pod"       // series of the pods with the most packets
)

// packets are numbers of packets by role.
type packets [rules.RoleCount]uint64

func (p *packets) add(increase packets) {
	for role, n := range increase {
		p[role] += n
	}
}

func (p *packets) sum() (total uint64) {
	for _, n := range p {
		total += n
	}
	return total
}

// podCounters contains the counters of a pod's rules. They never decrease, although the counter of
// a rule begins at 0 when a repair creates the rule again.
type podCounters struct {
	total packets
	// last contains the counters of the rules at the last audit; nil before the first audit, and
	// for a pod without counters.
	last []rules.RolePackets
	// netns and redirection are the network namespace and the parameters of these rules.
	netns       netns.ID
	redirection redirection
}

// restart records that all rules were created again: their counters begin at 0.
func (c *podCounters) restart() {
	c.last = slices.Clone(c.last)
	for i := range c.last {
		c.last[i].Packets = 0
	}
}

// update adds the packets since the last audit to the total, and returns these packets by role.
func (c *podCounters) update(
	current []rules.RolePackets, ns netns.ID, r redirection,
) (increase packets) {
	last := c.last
	switch {
	case ns != c.netns: // the pod has a new sandbox
		last = nil
	case r != c.redirection && !reflect.DeepEqual(r, c.redirection),
		len(last) != len(current): // the rules have moved to the other backend
		// Unchanged rules have kept their counts, but it is unknown which rules these are: the
		// packets since the last audit are not counted.
		last = current
	}
	for i, n := range current {
		var before uint64 // remains 0 for a rule that a repair has created again
		if last != nil && last[i].Packets <= n.Packets {
			before = last[i].Packets
		}
		increase[n.Role] += n.Packets - before
	}
	c.last, c.netns, c.redirection = current, ns, r
	c.total.add(increase)
	return increase
}

// countsPackets reports whether the counters of the pod's rules are read.
func (r *auditRun) countsPackets() bool {
	return r.Counters != NoCounters && r.desired.hasCounters()
}

// readCounters updates the counters of a pod that has its desired rules.
func (r *auditRun) readCounters(current []rules.RolePackets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[r.uid] != r.pod {
		return
	}
	c := &r.counters
	if !r.countsPackets() {
		*c = podCounters{}
		return
	}
	isFirst := c.last == nil
	increase := c.update(current, r.sandbox.ID, r.desired.redirection)
	total := r.byNamespace[r.item.Namespace]
	if total == nil {
		total = &packets{}
		r.byNamespace[r.item.Namespace] = total
	}
	// The packets from before the agent's start are in the series of the earlier agent. Prometheus
	// treats the lower value after the restart as a reset of the counter, and would count them
	// twice.
	if !isFirst || !r.existed {
		total.add(increase)
	}
}

// measureCounters updates the metric of the counters.
func (a *Auditor) measureCounters() {
	if a.Counters == NoCounters {
		return
	}
	a.mu.Lock()
	var counted []*pod
	inNamespace := map[string][]*pod{}
	for _, p := range a.pods {
		if p.counters.last != nil && p.state != "" {
			counted = append(counted, p)
			inNamespace[p.item.Namespace] = append(inNamespace[p.item.Namespace], p)
		}
	}
	var values []metrics.CounterValue
	if a.Counters == PodCounters {
		for _, p := range topPods(withoutReplaced(counted), a.TopPods) {
			values = append(values,
				series(p.item.Namespace, p.item.Name, &p.counters.total, p)...)
		}
	}
	for namespace, total := range a.byNamespace {
		switch pods := inNamespace[namespace]; {
		case len(pods) == 0:
			delete(a.byNamespace, namespace)
		case a.Counters == NamespaceCounters:
			values = append(values, series(namespace, "", total, pods...)...)
		}
	}
	a.mu.Unlock()
	a.Metrics.Replace(metrics.RulePackets("", "", rules.NoRole).Name(), values)
}

// withoutReplaced returns the pods, except an orphaned pod if another pod has its name, because two
// pods cannot have the same series. A pod that was omitted once is always omitted, so that a series
// does not continue with the counters of an earlier pod. The caller holds the auditor's lock.
func withoutReplaced(pods []*pod) []*pod {
	latest := map[string]*pod{} // by name
	for _, p := range pods {
		if p.replaced {
			continue
		}
		name := p.item.String()
		if other := latest[name]; other != nil {
			// It is not known which of two orphaned pods is the later one.
			if p.orphaned && (!other.orphaned || p.item.UID < other.item.UID) {
				p, other = other, p
			}
			other.replaced = true
		}
		latest[name] = p
	}
	return slices.Collect(maps.Values(latest))
}

// topPods returns the n pods with the most packets. It sorts pods.
func topPods(pods []*pod, n int) []*pod {
	slices.SortFunc(pods, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(b.counters.total.sum(), a.counters.total.sum()),
			cmp.Compare(a.item.UID, b.item.UID))
	})
	return pods[:min(n, len(pods))]
}

// series returns a value for each role of the pods' rules.
func series(namespace, name string, total *packets, pods ...*pod) []metrics.CounterValue {
	var hasRole [rules.RoleCount]bool
	for _, p := range pods {
		for _, n := range p.counters.last {
			hasRole[n.Role] = true
		}
	}
	var values []metrics.CounterValue
	for _, role := range rules.Roles() {
		if hasRole[role] {
			values = append(values, metrics.CounterValue{
				CounterSeries: metrics.RulePackets(namespace, name, role),
				Value:         float64(total[role]),
			})
		}
	}
	return values
}
