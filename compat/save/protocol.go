package save

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// protocolNames contains the names that iptables-save prints, by protocol number. They are the
// names of xtables_chain_protos, and of /etc/protocols in Debian.
var protocolNames = [...]string{
	0: "all", 1: "icmp", 2: "igmp", 3: "ggp", 4: "ipencap", 5: "st", 6: "tcp", 8: "egp", 9: "igp",
	12: "pup", 17: "udp", 20: "hmp",
	22: "xns-idp", 27: "rdp", 29: "iso-tp4", rules.DCCP: "dccp", 36: "xtp", 37: "ddp",
	38: "idpr-cmtp", 41: "ipv6", 43: "ipv6-route",
	44: "ipv6-frag", 45: "idrp", 46: "rsvp", 47: "gre", 50: "esp", 51: "ah", 57: "skip",
	58: "ipv6-icmp", 59: "ipv6-nonxt",
	60: "ipv6-opts", 73: "rspf", 81: "vmtp", 88: "eigrp", 89: "ospf", 93: "ax.25", 94: "ipip",
	97: "etherip", 98: "encap",
	103: "pim", 108: "ipcomp", 112: "vrrp", 115: "l2tp", 124: "isis", 132: "sctp", 133: "fc",
	135:           "mobility-header",
	rules.UDPLite: "udplite", 137: "mpls-in-ip", 138: "manet", 139: "hip", 140: "shim6",
	141: "wesp", 142: "rohc", 143: "ethernet",
}

// mobility is the protocol of the mobility header of IPv6 (RFC 6275). Package rules has no constant
// for this protocol.
const mobility rules.Protocol = 135

// protocolNamed returns the protocol with the name in lower case, or false if there is none.
func protocolNamed(name string) (rules.Protocol, bool) {
	switch name {
	case "":
		return 0, false
	case "icmpv6":
		return rules.ICMPv6, true
	case "ipv6-crypt":
		return 50, true
	case "ipv6-auth":
		return 51, true
	case "ipv6-mh", "mh":
		return mobility, true
	}
	i := slices.Index(protocolNames[:], name)
	return rules.Protocol(max(i, 0)), i >= 0
}
