package nftlist

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A table contains values by name. It is not a map, because a global map would be initialized at
// the start of every command. For the same reason, no table contains the result of a function call.
type table[V any] []struct {
	name  string
	value V
}

// A nameTable contains the numbers that names stand for.
type nameTable = table[uint64]

// find returns the value with the name.
func (t table[V]) find(name string) (value V, ok bool) {
	for _, entry := range t {
		if entry.name == name {
			return entry.value, true
		}
	}
	return value, false
}

// parseTC parses a handle of traffic control: a name, or two hexadecimal numbers.
func parseTC(text string) (uint64, bool) {
	switch text {
	case "none":
		return 0, true
	case "root":
		return 0xffffffff, true
	}
	major, minor, ok := strings.Cut(text, ":")
	if !ok {
		return 0, false
	}
	a, err := strconv.ParseUint("0"+major, 16, 16)
	if err != nil {
		return 0, false
	}
	b, err := strconv.ParseUint("0"+minor, 16, 16)
	return a<<16 | b, err == nil
}

// nft's names of values. otherProtocols contains the protocols that package rules does not name
// (IANA, Protocol Numbers).
var (
	otherProtocols = nameTable{
		{"igmp", 2},
		{"gre", 47},
		{"esp", 50},
		{"ah", 51},
		{"icmpv6", 58},
		{"comp", 108},
		{"ipcomp", 108},
	}
	protocolFamilies = nameTable{{"ipv4", unix.NFPROTO_IPV4}, {"ipv6", unix.NFPROTO_IPV6}}
	directions       = nameTable{{"original", 0}, {"reply", 1}}
	// In JSON nft writes index 0, which is no interface, as a string.
	indexes    = nameTable{{"lo", netns.LoopbackIndex}, {"0", 0}}
	etherTypes = nameTable{
		{"ip", unix.ETH_P_IP},
		{"arp", unix.ETH_P_ARP},
		{"vlan", unix.ETH_P_8021Q},
		{"ip6", unix.ETH_P_IPV6},
	}
	packetTypes = nameTable{
		{"host", unix.PACKET_HOST},
		{"unicast", unix.PACKET_HOST},
		{"broadcast", unix.PACKET_BROADCAST},
		{"multicast", unix.PACKET_MULTICAST},
		{"other", unix.PACKET_OTHERHOST},
	}
	icmpTypes = nameTable{
		{"echo-reply", 0},
		{"destination-unreachable", 3},
		{"source-quench", 4},
		{"redirect", 5},
		{"echo-request", 8},
		{"router-advertisement", 9},
		{"router-solicitation", 10},
		{"time-exceeded", 11},
		{"parameter-problem", 12},
		{"timestamp-request", 13},
		{"timestamp-reply", 14},
		{"info-request", 15},
		{"info-reply", 16},
		{"address-mask-request", 17},
		{"address-mask-reply", 18},
	}
	icmpv6Types = nameTable{
		{"destination-unreachable", 1},
		{"packet-too-big", 2},
		{"time-exceeded", 3},
		{"parameter-problem", 4},
		{"echo-request", 128},
		{"echo-reply", 129},
		{"mld-listener-query", 130},
		{"mld-listener-report", 131},
		{"mld-listener-done", 132},
		{"mld-listener-reduction", 132},
		{"nd-router-solicit", 133},
		{"nd-router-advert", 134},
		{"nd-neighbor-solicit", 135},
		{"nd-neighbor-advert", 136},
		{"nd-redirect", 137},
		{"router-renumbering", 138},
		{"ind-neighbor-solicit", 141},
		{"ind-neighbor-advert", 142},
		{"mld2-listener-report", 143},
	}
)

// The names of other values: ARPHRD_* of linux/if_arp.h, weekdays, and IPCT_* of
// linux/netfilter/nf_conntrack_common.h.
var (
	deviceTypes = nameTable{
		{"ether", unix.ARPHRD_ETHER},
		{"ppp", unix.ARPHRD_PPP},
		{"ipip", unix.ARPHRD_TUNNEL},
		{"ipip6", unix.ARPHRD_TUNNEL6},
		{"loopback", unix.ARPHRD_LOOPBACK},
		{"sit", unix.ARPHRD_SIT},
		{"ipgre", unix.ARPHRD_IPGRE},
	}
	weekdays = nameTable{
		{"Sunday", 0},
		{"Monday", 1},
		{"Tuesday", 2},
		{"Wednesday", 3},
		{"Thursday", 4},
		{"Friday", 5},
		{"Saturday", 6},
	}
	events = nameTable{
		{"new", 1 << 0},
		{"related", 1 << 1},
		{"destroy", 1 << 2},
		{"reply", 1 << 3},
		{"assured", 1 << 4},
		{"protoinfo", 1 << 5},
		{"helper", 1 << 6},
		{"mark", 1 << 7},
		{"seqadj", 1 << 8},
		{"secmark", 1 << 9},
		{"label", 1 << 10},
	}
)

func parseDeviceType(name string) (uint64, bool) { return deviceTypes.find(name) }
func parseWeekday(name string) (uint64, bool)    { return weekdays.find(name) }
func parseEvent(name string) (uint64, bool)      { return events.find(name) }

// parseRealm parses a realm without a name, which nft writes as a string in JSON.
func parseRealm(name string) (uint64, bool) { return parseNumber(name) }

func parseEtherType(name string) (uint64, bool)      { return etherTypes.find(name) }
func parseIndex(name string) (uint64, bool)          { return indexes.find(name) }
func parseProtocolFamily(name string) (uint64, bool) { return protocolFamilies.find(name) }
func parseDirection(name string) (uint64, bool)      { return directions.find(name) }
func parseICMPType(name string) (uint64, bool)       { return icmpTypes.find(name) }
func parseICMPv6Type(name string) (uint64, bool)     { return icmpv6Types.find(name) }
func parsePacketType(name string) (uint64, bool)     { return packetTypes.find(name) }
func parseICMPv6Code(name string) (uint64, bool)     { return rejectCode("icmpv6", name) }

func parseICMPCode(name string) (uint64, bool) {
	if name == "frag-needed" {
		return 4, true
	}
	return rejectCode("icmp", name)
}

func rejectCode(kind, name string) (uint64, bool) {
	code, ok := nft.RejectCode(kind, name)
	return uint64(code), ok
}

func parseProtocol(name string) (uint64, bool) {
	if number, ok := otherProtocols.find(name); ok {
		return number, true
	}
	p, err := rules.ParseProtocol(name)
	return uint64(p), err == nil
}

func parseAddrType(name string) (uint64, bool) {
	t, err := rules.ParseAddrType(name)
	return uint64(t), err == nil
}

func parseState(name string) (uint64, bool) {
	s, ok := findNamed(name, rules.Invalid, rules.Established, rules.Related, rules.New,
		rules.Untracked)
	return uint64(nft.StateBit(s)), ok
}

func parseStatus(name string) (uint64, bool) {
	s, ok := findNamed(name, rules.StatusExpected, rules.StatusSeenReply, rules.StatusAssured,
		rules.StatusConfirmed, rules.StatusSNAT, rules.StatusDNAT)
	return uint64(s), ok
}

func parseTCPFlag(name string) (uint64, bool) {
	f, ok := findNamed(name, rules.FIN, rules.SYN, rules.RST, rules.PSH, rules.ACK, rules.URG,
		rules.ECN, rules.CWR)
	return uint64(f), ok
}

// findNamed returns the value whose text is the name.
func findNamed[V fmt.Stringer](name string, values ...V) (found V, ok bool) {
	for _, v := range values {
		if v.String() == name {
			return v, true
		}
	}
	return found, false
}
