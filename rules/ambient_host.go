package rules

import (
	"math/bits"
	"net/netip"

	"go4.org/netipx"
)

// AmbientHost contains the parameters of the rules of a node with pods in ambient mode. The rules
// give probes of the kubelet a source address from which pods capture no connections, see
// [Ambient.ProbeSourceIPv4]. Start with [DefaultAmbientHost]: the zero value is invalid.
type AmbientHost struct {
	// Pods are the addresses of the pods in ambient mode.
	Pods []netip.Addr
	// Kubelet is the cgroup of the kubelet: connections of its processes are probes. It needs a
	// Path for iptables-legacy, and an ID for nftables. The zero value, for nodes without cgroups
	// of version 2, means that connections of all processes of KubeletUID are probes, as in
	// Istio's nftables backend.
	Kubelet MatchCgroup
	// KubeletUID is the user of the kubelet. It has no effect if the cgroup identifies probes.
	KubeletUID uint32
	// ProbeSourceIPv4 and ProbeSourceIPv6 are the source addresses that probes get.
	ProbeSourceIPv4, ProbeSourceIPv6 netip.Addr
	// ProbeMark is the bit of the packet's mark that the rules at output set if the kubelet has
	// sent the packet, and that the rules at postrouting match.
	ProbeMark uint32
	// IPv6 reports whether the rules also apply to the IPv6 addresses of Pods.
	IPv6 bool
	// Counters gives each rule a counter.
	Counters bool
	// Without contains the disabled deviations. Only [NATFirst], [ProbesByUser] and [ProbesByHost]
	// apply.
	Without []DeviationID
}

// DefaultProbeMark is a bit of the mark that kube-proxy (0xc000), Calico (the upper 16 bits),
// Cilium (0xf00, and the upper 16 bits) and the CNI plugins of AWS (0x80) do not use.
const DefaultProbeMark = 0x2000

// DefaultAmbientHost returns the parameters of a node without pods, whose kubelet runs as user 0.
func DefaultAmbientHost() AmbientHost {
	return AmbientHost{
		ProbeSourceIPv4: DefaultProbeSourceIPv4(), ProbeSourceIPv6: DefaultProbeSourceIPv6(),
		ProbeMark: DefaultProbeMark, IPv6: true,
	}
}

// Validate returns nil if [CompileAmbientHost] accepts the parameters, and otherwise [Faults] with
// all invalid parameters.
func (h *AmbientHost) Validate() error {
	var faults Faults
	check := faults.check
	faults.checkProbeSources(h.ProbeSourceIPv4, h.ProbeSourceIPv6)
	for _, a := range h.Pods {
		check(isUnicast(a) && a.Zone() == "", "Pods", a, "the address of a pod")
	}
	check(bits.OnesCount32(h.ProbeMark) == 1, "ProbeMark", h.ProbeMark, "a mark with one bit")
	if k := h.Kubelet; k != (MatchCgroup{}) {
		hasLevelOfPath := k.Path == "" || k.Level == CgroupOf(k.Path).Level
		check(k.Level > 0 && hasLevelOfPath && (k.Path != "" || k.ID != 0), "Kubelet", k,
			"a cgroup with a Path, an ID or both, and the Level of the Path")
	}
	faults.checkDeviations(h.Without)
	return faults.orNil()
}

// CompileAmbientHost returns the ruleset of a node. For invalid parameters it returns the [Faults]
// of [AmbientHost.Validate]. Without pods the ruleset has no rules.
//
// If Kubelet is set, and [ProbesByUser] and [ProbesByHost] are enabled, a packet is a probe if its
// socket was created in the cgroup of the kubelet. nf_tables can match the cgroup of a socket only
// at output, and can translate the source of a packet only at postrouting. Therefore the rules at
// output set ProbeMark, and the rules at postrouting match this mark.
func CompileAmbientHost(h AmbientHost) (Ruleset, error) {
	if err := h.Validate(); err != nil {
		return Ruleset{}, err
	}
	c := ambientHostCompiler{
		AmbientHost: h,
		compiler: newCompiler(Redirect{
			IPv6: h.IPv6, Counters: h.Counters, Without: h.Without,
			LoopbackCIDR: DefaultLoopbackCIDR(),
		}),
	}
	pods := make([]netip.Prefix, 0, len(h.Pods))
	for _, a := range h.Pods {
		a = a.Unmap()
		pods = append(pods, netip.PrefixFrom(a, a.BitLen()))
	}
	c.pods = c.destinations(pods)
	return c.ruleset([]Chain{c.mangleOutput(), c.natPostrouting()}, Routing{}), nil
}

// ambientHostCompiler compiles an AmbientHost with the methods of the compiler of a [Redirect].
type ambientHostCompiler struct {
	*compiler
	AmbientHost
	pods addressRanges
}

// byCgroup reports whether the cgroup decides which packets are probes.
func (c *ambientHostCompiler) byCgroup() bool {
	return c.Kubelet != (MatchCgroup{}) && c.deviates(ProbesByUser) && c.deviates(ProbesByHost)
}

// mangleOutput marks the packets of the kubelet to pods, if the cgroup identifies them. The chain
// has type route, like the chain of table mangle in iptables; no policy route of Sluice selects the
// mark.
func (c *ambientHostCompiler) mangleOutput() Chain {
	b := c.base("mangle-output", Route, Output, c.priority(ManglePriority, IstioManglePriority))
	if c.byCgroup() {
		for pods := range c.toRanges(c.pods, "probes") {
			b.add("probes of the kubelet", SetMark{Value: c.ProbeMark, Mask: c.ProbeMark}, tcp, pods,
				c.Kubelet)
		}
	}
	return b.build()
}

// natPostrouting translates the source of probes.
func (c *ambientHostCompiler) natPostrouting() Chain {
	b := c.base("nat-postrouting", NAT, Postrouting,
		c.priority(SourceNATPriority, IstioSourceNATPriority))
	var sender Match
	switch {
	case !c.deviates(ProbesByHost):
		sender = MatchOwner{IDs: []IDRange{{Last: ^uint32(0)}}}
	case c.byCgroup():
		sender = MatchMark{Value: c.ProbeMark, Mask: c.ProbeMark}
	default:
		sender = byUser(Singles(c.KubeletUID))
	}
	for pods := range c.toRanges(c.pods, "probes") {
		source := ByFamily(pods.Family(), c.ProbeSourceIPv4, c.ProbeSourceIPv6)
		b.add("the source of probes", SNATTo{Addr: source}, tcp, pods, sender)
	}
	return b.build()
}

// Descriptions of the addresses that [AllowsProbeSourceIPv4] and [AllowsProbeSourceIPv6] allow.
const (
	AllowedProbeSourceIPv4 = "a unicast IPv4 address that is not a loopback address"
	AllowedProbeSourceIPv6 = "a unicast IPv6 address without zone that is not a loopback address"
)

// AllowsProbeSourceIPv4 reports whether a is an IPv4 address to which a pod can send the answer to
// a probe. A pod drops packets from other addresses.
func AllowsProbeSourceIPv4(a netip.Addr) bool {
	return a.Is4() && isUnicast(a) && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// AllowsProbeSourceIPv6 reports whether a is an IPv6 address to which a pod can send the answer to
// a probe. A pod drops packets from other addresses.
func AllowsProbeSourceIPv6(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.Zone() == "" && isUnicast(a)
}

// isUnicast reports whether a may be the address of a host on a network. It does not recognize
// broadcast addresses.
func isUnicast(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

// checkProbeSources appends a fault for each invalid source address of probes.
func (f *Faults) checkProbeSources(ipv4, ipv6 netip.Addr) {
	f.check(AllowsProbeSourceIPv4(ipv4), "ProbeSourceIPv4", ipv4, AllowedProbeSourceIPv4)
	f.check(AllowsProbeSourceIPv6(ipv6), "ProbeSourceIPv6", ipv6, AllowedProbeSourceIPv6)
}

// oneAddress returns the range of one address.
func oneAddress(a netip.Addr) []netipx.IPRange {
	return []netipx.IPRange{netipx.IPRangeFrom(a, a)}
}
