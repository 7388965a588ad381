package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nft's names of the keys of meta, ct and socket. The index is the kernel's number of the key.
var (
	metaKeys = [...]string{
		"length", "protocol", "priority", "mark", "iif", "oif", "iifname", "oifname", "iiftype",
		"oiftype", "skuid", "skgid", "nftrace",
		"rtclassid", "secmark", "nfproto", "l4proto", "ibrname", "obrname", "pkttype", "cpu",
		"iifgroup", "oifgroup", "cgroup", "random",
		"ipsec", "iifkind", "oifkind", "ibrpvid", "ibrvproto", "time", "day", "hour", "sdif",
		"sdifname", "broute",
	}
	ctKeys = [...]string{
		"state", "direction", "status", "mark", "secmark", "expiration", "helper", "l3proto",
		"saddr", "daddr", "protocol", "proto-src",
		"proto-dst", "label", "packets", "bytes", "avgpkt", "zone", "event", "ip saddr", "ip daddr",
		"ip6 saddr", "ip6 daddr", "id",
	}
	socketKeys = [...]string{"transparent", "mark", "wildcard", "cgroupv2"}
)

// keyName returns nft's name of a key, or its number if it has no name.
func keyName(names []string, key uint32) string {
	if key < uint32(len(names)) {
		return names[key]
	}
	return fmt.Sprint(key)
}

// loadText describes the operand that an expression loads. The text includes all attributes except
// registers.
func loadText(name string, kind *expressionKind, a attributes) string {
	switch name {
	case "meta":
		return "meta " + keyName(metaKeys[:], a.Number(unix.NFTA_META_KEY))
	case "ct":
		text := "ct "
		if direction := a.Get(unix.NFTA_CT_DIRECTION); len(direction) == 1 {
			text += map[byte]string{0: "original ", 1: "reply "}[direction[0]]
		}
		return text + keyName(ctKeys[:], a.Number(unix.NFTA_CT_KEY))
	case "socket":
		text := "socket " + keyName(socketKeys[:], a.Number(expr.NFTA_SOCKET_KEY))
		if a.Get(expr.NFTA_SOCKET_LEVEL) != nil {
			text += fmt.Sprintf(" level %d", a.Number(expr.NFTA_SOCKET_LEVEL))
		}
		return text
	}
	var parts []string
	a.Each(func(attrType uint16, value []byte) {
		if attrType != kind.destination && attrType != kind.sources[0] &&
			attrType != kind.sources[1] {
			parts = append(parts, fmt.Sprintf("%d=%x", attrType, value))
		}
	})
	return strings.TrimSpace(name + " " + strings.Join(parts, " "))
}

// maxValueLength is the maximum number of bytes of a load without a specified length: an IPv6
// address or an interface name.
const maxValueLength = 16

// loadLength returns the maximum number of bytes that an expression loads.
func loadLength(name string, a attributes) int {
	var length uint32
	switch name {
	case "payload":
		length = a.Number(unix.NFTA_PAYLOAD_LEN)
	case "exthdr":
		length = a.Number(unix.NFTA_EXTHDR_LEN)
	case "bitwise":
		length = a.Number(unix.NFTA_BITWISE_LEN)
	case "byteorder":
		length = a.Number(unix.NFTA_BYTEORDER_LEN)
	case "meta":
		if key := a.Number(unix.NFTA_META_KEY); key < uint32(len(metaKeys)) {
			switch metaKeys[key] {
			case "time":
				return 8
			case "iifname", "oifname", "ibrname", "obrname", "iifkind", "oifkind", "sdifname":
				return maxValueLength
			}
			return 4
		}
	case "fib", "numgen", "hash", "tunnel":
		if name != "fib" || a.Number(unix.NFTA_FIB_RESULT) != unix.NFT_FIB_RESULT_OIFNAME {
			return 4
		}
	}
	if length == 0 || length > registerCount*4 {
		return maxValueLength
	}
	return int(length)
}

// conditionText describes the comparison of an operand with a value or a set.
func conditionText(operand, value string, negated bool) string {
	if negated {
		return operand + " != " + value
	}
	return operand + " " + value
}

// rangeText formats an interval.
func rangeText(key keyInterval) string {
	if string(key.first) == string(key.last) {
		return fmt.Sprintf("0x%x", key.first)
	}
	return fmt.Sprintf("0x%x-0x%x", key.first, key.last)
}

// MetaKey returns the kernel's number of the meta key with nft's name, or false if there is no such
// key.
func MetaKey(name string) (uint32, bool) { return keyNamed(metaKeys[:], name) }

// CTKey returns the kernel's number of the ct key with nft's name, or false if there is no such
// key.
func CTKey(name string) (uint32, bool) { return keyNamed(ctKeys[:], name) }

func keyNamed(names []string, name string) (uint32, bool) {
	i := slices.Index(names, name)
	return uint32(i), i >= 0
}
