package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// NodeFacts are the facts about the network namespace of a node with pods in ambient mode.
type NodeFacts struct {
	Facts
	// Live contains the rules of all programs in all backends.
	Live    compat.Live
	LiveErr error
}

// GatherNode is [Gather] for the network namespace of a node.
func GatherNode(ns *netns.NS, desired rules.Ruleset, budget diff.Budget) NodeFacts {
	f := NodeFacts{Facts: Gather(ns, desired, budget)}
	f.Live, f.LiveErr = compat.ReadLive(ns, compat.OriginAll)
	return f
}

// DiagnoseNode returns the findings for the rules of a node with pods in ambient mode, the most
// severe first. It panics if the parameters are invalid (see [rules.AmbientHost.Validate]).
func DiagnoseNode(f NodeFacts, h rules.AmbientHost) []Finding {
	compiled, err := rules.CompileAmbientHost(h)
	if err != nil {
		panic(err)
	}
	a := rules.DefaultAmbient()
	d := &diagnosis{Facts: f.Facts, redirect: a.AsRedirect(), ambient: &a, compiled: compiled}
	d.checkKernel()
	d.checkLegacyKernel()
	d.checkPermission()
	d.checkConntrack()
	d.checkKubelet(&h)
	d.checkProbes(&f, &h)
	return d.sortFindings()
}

// checkKubelet reports how the rules recognize probes of the kubelet.
func (d *diagnosis) checkKubelet(h *rules.AmbientHost) {
	if h.Kubelet != (rules.MatchCgroup{}) {
		d.add("rules", OK, fmt.Sprintf("probes are connections of the cgroup /%s", h.Kubelet.Path),
			"")
		return
	}
	d.add("rules", Warning,
		fmt.Sprintf("the kubelet has no cgroup of its own, or its cgroup is not known: connections"+
			" of all processes of uid %d to pods in ambient mode are taken for probes and bypass ztunnel",
			h.KubeletUID),
		"run rules status to see the reason")
}

// checkProbes reports which source address the rules of the node assign to probes.
func (d *diagnosis) checkProbes(f *NodeFacts, h *rules.AmbientHost) {
	if f.LiveErr != nil {
		d.add("rules", Warning, "cannot read the rules of the node: "+f.LiveErr.Error(), "")
		return
	}
	if len(h.Pods) == 0 {
		d.add("rules", OK, "this node has no pods in ambient mode", "")
		return
	}
	for _, a := range f.Live.Ambiguous {
		if a.Hook == rules.Postrouting {
			d.add("rules", Note,
				a.String()+": the source of probes may differ from the one reported here", "")
		}
	}
	budget := f.Budget.From(time.Now()) // for all samples together
	for _, pod := range samplePods(h) {
		desired := h.ProbeSourceIPv4
		if pod.Is6() {
			desired = h.ProbeSourceIPv6
		}
		trace := diff.ExplainWithin(&f.Live.Ruleset, probePacket(h, pod), budget)
		severity, summary, next := probeFinding(trace, pod, desired)
		d.add("rules", severity, summary, next)
	}
}

// probeFinding returns the finding about a probe to the pod. desired is the source address that
// Sluice's rules assign.
func probeFinding(
	trace rules.Trace, pod, desired netip.Addr,
) (severity Severity, summary, next string) {
	outcome := trace.Outcome
	const consequence = ": the pod captures the probes, and ztunnel may reject them"
	switch {
	case trace.Exhausted != "" || outcome.Undecided != "":
		return Warning, fmt.Sprintf("the source of probes to %s cannot be decided: %s%s", pod,
			trace.Exhausted, outcome.Undecided), ""
	case trace.DroppedWithoutRule() != nil:
		return Problem, fmt.Sprintf("probes to %s are dropped: %s", pod,
				trace.DroppedWithoutRule()),
			"accept the probes in that chain, or change its policy"
	case outcome.Dropped:
		return Problem, fmt.Sprintf("probes to %s are dropped%s", pod,
			by(lastStep(trace, anyStep))), "remove that rule"
	case outcome.SNATAddr == desired:
		return OK, fmt.Sprintf("probes to %s get the source %s", pod, desired), ""
	case outcome.SNATAddr.IsValid() || outcome.SNAT != "":
		// The kernel evaluates no nat rule after the rule that changes the source.
		return Problem, fmt.Sprintf("probes to %s do not get the source %s; their source is"+
				" changed%s%s", pod, desired, by(lastStep(trace, isNAT)), consequence),
			"remove that rule, or move its chain after Sluice's"
	}
	if step := lastStep(trace, anyStep); step != nil {
		return Problem, fmt.Sprintf("probes to %s keep their source%s; the last rule that matches"+
				" them is %s", pod, consequence, step),
			"run rules check --node to find differences from Sluice's rules"
	}
	return Problem, fmt.Sprintf("no rule changes the source of probes to %s to %s%s", pod, desired,
		consequence), "the agent writes the rules again; if it cannot, run rules status to see the reason"
}

// samplePods returns the address of one pod of each captured family, if there is such a pod.
func samplePods(h *rules.AmbientHost) (addrs []netip.Addr) {
	for _, isIPv6 := range []bool{false, true} {
		for _, a := range h.Pods {
			if a = a.Unmap(); a.Is6() == isIPv6 && (h.IPv6 || !isIPv6) {
				addrs = append(addrs, a)
				break
			}
		}
	}
	return addrs
}

// probePacket returns the first packet of a probe at postrouting, with the mark that the rules at
// output have set.
func probePacket(h *rules.AmbientHost, pod netip.Addr) rules.Packet {
	p := sentPacket(rules.TCP, rules.Owner{UID: h.KubeletUID, GID: h.KubeletUID},
		documentationAddr(rules.FamilyOf(pod)), netip.AddrPortFrom(pod, 8080))
	p.Hook, p.Mark = rules.Postrouting, h.ProbeMark
	return p
}

// lastStep returns the last matching rule for which isWanted returns true, or nil.
func lastStep(t rules.Trace, isWanted func(*rules.Step) bool) *rules.Step {
	for _, pass := range slices.Backward(t.Passes) {
		for i := range slices.Backward(pass.Steps) {
			if step := &pass.Steps[i]; isWanted(step) {
				return step
			}
		}
	}
	return nil
}

func anyStep(*rules.Step) bool { return true }

// isNAT reports whether the rule was reached from a chain of type nat.
func isNAT(s *rules.Step) bool { return s.Base.Type == rules.NAT }

// by returns " by" and the rule, or an empty string without a rule.
func by(s *rules.Step) string {
	if s == nil {
		return ""
	}
	return " by " + s.String()
}
