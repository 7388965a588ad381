package xtables

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// byteOrder is the byte order of numbers. It is a pointer, because a copy of binary.NativeEndian
// would need initialization code at program start.
var byteOrder = &binary.NativeEndian

// A layout contains the differences between the families: socket options, and the offsets of fields
// in struct ipt_entry and struct ip6t_entry.
type layout struct {
	family    rules.Family
	domain    int    // of the socket
	level     int    // of the socket options
	namesFile string // the file in /proc/PID/net that lists the tables
	module    string // the name of the kernel module
	// revisionOption is the socket option for the revision of a match. The option for the revision
	// of a target is the next number.
	revisionOption int

	addressSize int // in bytes
	gotoFlag    byte

	// Offsets of fields in the entry.
	protocol     int
	flags        int
	invert       int
	targetOffset int // a 16-bit number: the offset of the target
	nextOffset   int // a 16-bit number: the size of the whole entry
	comefrom     int // a 32-bit number that only the kernel uses
	counters     int

	headerSize int // size of the entry in bytes without matches and target
}

var layouts = [...]layout{
	{
		family: rules.IPv4, domain: unix.AF_INET, level: unix.SOL_IP, namesFile: "ip_tables_names",
		module:         "ip_tables",
		revisionOption: 66, // IPT_SO_GET_REVISION_MATCH
		addressSize:    4, protocol: 80, flags: 82, invert: 83, gotoFlag: 0x02,
		targetOffset: 88, nextOffset: 90, comefrom: 92, counters: 96, headerSize: 112,
	},
	{
		family: rules.IPv6, domain: unix.AF_INET6, level: unix.SOL_IPV6, namesFile: "ip6_tables_names",
		module:         "ip6_tables",
		revisionOption: 68, // IP6T_SO_GET_REVISION_MATCH
		addressSize:    16, protocol: 128, flags: 131, invert: 132, gotoFlag: 0x04,
		targetOffset: 140, nextOffset: 142, comefrom: 144, counters: 152, headerSize: 168,
	},
}

// layoutOf returns the layout of a family, which must be IPv4 or IPv6.
func layoutOf(f rules.Family) (*layout, error) {
	for i := range layouts {
		if layouts[i].family == f {
			return &layouts[i], nil
		}
	}
	return nil, fmt.Errorf("iptables has no tables of family %s", f)
}

const (
	nameSize     = 32 // XT_TABLE_MAXNAMELEN
	countersSize = 16 // struct xt_counters
	alignment    = 8

	// struct xt_entry_match and struct xt_entry_target: a 16-bit size, the name, the revision, and
	// then the data of the extension.
	extensionSize           = 32
	extensionNameOffset     = 2
	extensionRevisionOffset = 31
	extensionNameSize       = extensionRevisionOffset - extensionNameOffset

	// struct xt_standard_target: a verdict, padded.
	standardSize = extensionSize + 8

	errorTarget   = "ERROR" // XT_ERROR_TARGET
	errorNameSize = 30      // XT_FUNCTION_MAXNAMELEN
)

// hookCount is the number of hooks at which a table may have built-in chains.
const hookCount = len(xt.BuiltInChains)

// A blob is a table in the kernel's format.
type blob struct {
	offsets
	entries []byte
}

// offsets contains the offsets of the chains and the number of entries.
type offsets struct {
	validHooks uint32            // a bit for each hook at which the table has a chain
	hookEntry  [hookCount]uint32 // offsets of the first entries of the built-in chains
	underflow  [hookCount]uint32 // offsets of the last entries of the built-in chains
	count      uint32            // the number of entries
}

// entry is one entry of a blob.
type entry []byte

// sizeOf returns the size of the entry in bytes, including its matches and target.
func (l *layout) sizeOf(e entry) int { return int(byteOrder.Uint16(e[l.nextOffset:])) }

// targetOf returns the offset of the target in the entry.
func (l *layout) targetOf(e entry) int { return int(byteOrder.Uint16(e[l.targetOffset:])) }

// countersOf returns the counters of the entry.
func (l *layout) countersOf(e entry) rules.Hits {
	return rules.Hits{
		Packets: byteOrder.Uint64(e[l.counters:]), Bytes: byteOrder.Uint64(e[l.counters+8:]),
	}
}

// checkEntry returns the first entry of the bytes. It returns an error if the entry is not
// well-formed.
func (l *layout) checkEntry(b []byte) (entry, error) {
	if len(b) < l.headerSize {
		return nil, fmt.Errorf("%d bytes remain, but an entry has at least %d", len(b), l.headerSize)
	}
	next, target := l.sizeOf(b), l.targetOf(b)
	switch {
	case target < l.headerSize || next < target+extensionSize:
		return nil, fmt.Errorf("target at %d, end at %d: want a target of %d bytes or more after the "+
			"header of %d bytes", target, next, extensionSize, l.headerSize)
	case next > len(b):
		return nil, fmt.Errorf("end at %d, but only %d bytes remain", next, len(b))
	case next%alignment != 0:
		return nil, fmt.Errorf("end at %d, which is not a multiple of %d", next, alignment)
	}
	e := entry(b[:next:next])
	for at := l.headerSize; at < target; {
		size := int(byteOrder.Uint16(e[at:]))
		if size < extensionSize || size > target-at {
			return nil, fmt.Errorf("match of %d bytes at %d, target at %d: want a match of %d bytes or "+
				"more that ends before the target", size, at, target, extensionSize)
		}
		at += size
		if at != target && target-at < extensionSize {
			return nil, fmt.Errorf("%d bytes between a match and the target", target-at)
		}
	}
	if size := int(byteOrder.Uint16(e[target:])); size < extensionSize || size > next-target {
		return nil, fmt.Errorf("target of %d bytes, but only %d bytes remain", size, next-target)
	}
	return e, nil
}
