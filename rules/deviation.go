package rules

import (
	"fmt"
	"slices"
	"strings"
)

// A DeviationID identifies a deviation from the behavior of istio-init's iptables rules, or of the
// rules of istio-cni in ambient mode.
type DeviationID string

// The deviations. Without them each new connection is handled as with istio-init, or with
// istio-cni. The backends of istio-cni differ: without [AmbientIPv6] and [ProbesByUser] as with
// nftables, without [ProbesByHost] as with iptables.
const (
	TunnelPortTProxy DeviationID = "tproxy-tunnel-port"
	RerouteTProxy    DeviationID = "tproxy-reroute"
	MappedCIDR       DeviationID = "mapped-cidr"
	NATFirst         DeviationID = "nat-first"
	AmbientIPv6      DeviationID = "ambient-ipv6"
	ProbesByUser     DeviationID = "probes-by-user"
	ProbesByHost     DeviationID = "probes-by-host"
)

// A Deviation describes for users what differs and why.
type Deviation struct {
	ID     DeviationID
	Reason string
}

// Deviations lists all deviations. Each is enabled unless Redirect.Without contains it.
var Deviations = []Deviation{
	{
		TunnelPortTProxy,
		"in TPROXY mode istio-init captures the tunnel port as plain inbound traffic, so that HBONE never " +
			"reaches its listener; here it is not captured, as in REDIRECT mode",
	},
	{
		RerouteTProxy,
		"in TPROXY mode istio-init also captures what arrives on a rerouted interface as inbound; here it is outbound " +
			"traffic of the machine at the interface, as in REDIRECT mode",
	},
	{
		MappedCIDR,
		"istio-init matches an IPv4-mapped prefix (::ffff:10.0.0.0/104) against IPv6 packets, of which none has such an " +
			"address; here it means the IPv4 prefix",
	},
	{
		NATFirst,
		"istio-init's hooks have the same priority as those of other owners of NAT, so that the order of installation " +
			"decides who captures a connection; here ours run ten earlier than those of iptables",
	},
	{
		AmbientIPv6,
		"in ambient mode without IPv6, istio-cni's nftables backend still marks IPv6 packets, and captures those of DNS " +
			"over UDP and of rerouted interfaces; here it leaves IPv6 alone, as its iptables backend does",
	},
	{
		ProbesByUser,
		"on the node, istio-cni's nftables backend takes connections of every process with the user of the kubelet for " +
			"probes, which the pod does not capture; here only those of processes in the cgroup of the kubelet",
	},
	{
		ProbesByHost,
		"on the node, istio-cni's iptables backend takes connections of every process in the network of the host for " +
			"probes, which the pod does not capture; here only those of processes in the cgroup of the kubelet",
	},
}

// ParseDeviationID parses the id of a deviation.
func ParseDeviationID(text string) (DeviationID, error) {
	ids := make([]string, len(Deviations))
	for i, d := range Deviations {
		if string(d.ID) == text {
			return d.ID, nil
		}
		ids[i] = string(d.ID)
	}
	return "", fmt.Errorf("%q is not a deviation; there are %s", text, strings.Join(ids, ", "))
}

// StrictIstio disables all deviations.
func (r *Redirect) StrictIstio() {
	r.Without = nil
	for _, d := range Deviations {
		r.Without = append(r.Without, d.ID)
	}
}

func (r *Redirect) deviates(id DeviationID) bool { return !slices.Contains(r.Without, id) }
