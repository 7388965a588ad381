package nftlist

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// named returns a function that looks up a name in a table.
func named(numbers map[string]uint64) func(string) (uint64, bool) {
	return func(name string) (uint64, bool) {
		n, ok := numbers[name]
		return n, ok
	}
}

// otherProtocol returns the number of a protocol (IANA, Protocol Numbers) that package rules has no
// name for.
func otherProtocol(name string) (uint64, bool) {
	return named(map[string]uint64{
		"igmp": 2, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "comp": 108, "ipcomp": 108,
	})(name)
}

// codeNamed returns a function that looks up an ICMP code of the kind icmp or icmpv6.
func codeNamed(kind string) func(string) (uint64, bool) {
	return func(name string) (uint64, bool) {
		if kind == "icmp" && name == "frag-needed" {
			return 4, true
		}
		code, ok := nft.RejectCode(kind, name)
		return uint64(code), ok
	}
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

// nft's names of values.
var (
	protocolFamilies = map[string]uint64{"ipv4": unix.NFPROTO_IPV4, "ipv6": unix.NFPROTO_IPV6}
	directions       = map[string]uint64{"original": 0, "reply": 1}
	// The index of lo is the same in every namespace (LOOPBACK_IFINDEX in net/net_namespace.h).
	indexes    = map[string]uint64{"lo": 1}
	etherTypes = map[string]uint64{
		"ip": unix.ETH_P_IP, "arp": unix.ETH_P_ARP, "vlan": unix.ETH_P_8021Q,
		"ip6": unix.ETH_P_IPV6,
	}
	packetTypes = map[string]uint64{
		"host": unix.PACKET_HOST, "unicast": unix.PACKET_HOST, "broadcast": unix.PACKET_BROADCAST,
		"multicast": unix.PACKET_MULTICAST, "other": unix.PACKET_OTHERHOST,
	}
	icmpTypes = map[string]uint64{
		"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5,
		"echo-request": 8, "router-advertisement": 9, "router-solicitation": 10,
		"time-exceeded": 11, "parameter-problem": 12, "timestamp-request": 13,
		"timestamp-reply": 14, "info-request": 15, "info-reply": 16, "address-mask-request": 17,
		"address-mask-reply": 18,
	}
	icmpv6Types = map[string]uint64{
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3,
		"parameter-problem": 4, "echo-request": 128, "echo-reply": 129,
		"mld-listener-query": 130, "mld-listener-report": 131, "mld-listener-done": 132,
		"mld-listener-reduction": 132, "nd-router-solicit": 133, "nd-router-advert": 134,
		"nd-neighbor-solicit": 135, "nd-neighbor-advert": 136, "nd-redirect": 137,
		"router-renumbering": 138, "ind-neighbor-solicit": 141, "ind-neighbor-advert": 142,
		"mld2-listener-report": 143,
	}
)

func parseProtocol(name string) (uint64, bool) {
	p, err := rules.ParseProtocol(name)
	if err != nil {
		return otherProtocol(name)
	}
	return uint64(p), true
}

func parseAddrType(name string) (uint64, bool) {
	t, err := rules.ParseAddrType(name)
	return uint64(t), err == nil
}

func parseState(name string) (uint64, bool) {
	for _, s := range []rules.State{
		rules.Invalid, rules.Established, rules.Related, rules.New, rules.Untracked,
	} {
		if s.String() == name {
			return uint64(nft.StateBit(s)), true
		}
	}
	return 0, false
}

func parseStatus(name string) (uint64, bool) {
	for bit := rules.StatusExpected; bit <= rules.StatusDNAT; bit <<= 1 {
		if bit.String() == name {
			return uint64(bit), true
		}
	}
	return 0, false
}

func parseTCPFlag(name string) (uint64, bool) {
	for flag := rules.FIN; flag != 0; flag <<= 1 {
		if flag.String() == name {
			return uint64(flag), true
		}
	}
	return 0, false
}
