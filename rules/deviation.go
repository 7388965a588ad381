package rules

import (
	"fmt"
	"slices"
	"strings"
)

// A DeviationID identifies a deviation from the behavior of istio-init's iptables rules, or of the
// rules of istio-cni in ambient mode.
type DeviationID string

// The deviations. If all are disabled, each new connection is handled as with istio-init, or in
// ambient mode as with istio-cni. Where the backends of istio-cni differ, disabling [AmbientIPv6]
// or [ProbesByUser] selects the behavior of the nftables backend, and disabling [ProbesByHost] the
// behavior of the iptables backend.
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

// Deviations lists all deviations. A deviation is enabled unless the field Without of the
// parameters contains its ID.
var Deviations = []Deviation{
	{
		TunnelPortTProxy,
		"in TPROXY mode istio-init captures the tunnel port as plain inbound traffic, and HBONE " +
			"never reaches its listener; here the port is not captured, as in REDIRECT mode",
	},
	{
		RerouteTProxy,
		"in TPROXY mode istio-init captures packets that arrive on a rerouted interface as " +
			"inbound; here they are outbound traffic of the virtual machine, as in REDIRECT mode",
	},
	{
		MappedCIDR,
		"istio-init matches an IPv4-mapped prefix (::ffff:10.0.0.0/104) against IPv6 packets, " +
			"which never have such an address; here it means the IPv4 prefix",
	},
	{
		NATFirst,
		"istio-init's chains have the same priority as the NAT chains of other programs, so " +
			"the order of installation decides which program captures a connection; here " +
			"Sluice's priorities are lower by ten, so that its chains run first",
	},
	{
		AmbientIPv6,
		"in ambient mode without IPv6, istio-cni's nftables backend still marks IPv6 packets, " +
			"and captures DNS over UDP and connections of rerouted interfaces over IPv6; here " +
			"IPv6 packets are neither marked nor captured, as with istio-cni's iptables backend",
	},
	{
		ProbesByUser,
		"on the node, istio-cni's nftables backend treats connections of every process with the " +
			"kubelet's user as probes, which the pod does not capture; here only connections of " +
			"processes in the kubelet's cgroup are probes, if the cgroup is known",
	},
	{
		ProbesByHost,
		"on the node, istio-cni's iptables backend treats connections of every process in the " +
			"host's network as probes, which the pod does not capture; here only connections of " +
			"processes in the kubelet's cgroup are probes, or of the kubelet's user if the cgroup " +
			"is not known",
	},
}

// ParseDeviationID parses the id of a deviation.
func ParseDeviationID(id string) (DeviationID, error) {
	ids := make([]string, len(Deviations))
	for i, d := range Deviations {
		if string(d.ID) == id {
			return d.ID, nil
		}
		ids[i] = string(d.ID)
	}
	return "", fmt.Errorf("unknown deviation %q; want one of %s", id, strings.Join(ids, ", "))
}

// StrictIstio disables all deviations.
func (r *Redirect) StrictIstio() {
	r.Without = nil
	for _, d := range Deviations {
		r.Without = append(r.Without, d.ID)
	}
}

// deviates reports whether the deviation is enabled.
func (r *Redirect) deviates(id DeviationID) bool { return !slices.Contains(r.Without, id) }
