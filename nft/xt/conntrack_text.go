package xt

import (
	"cmp"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A ConntrackField is a field that the match conntrack compares, or a set of such fields.
type ConntrackField uint16

// The fields (XT_CONNTRACK_STATE and others).
const (
	ConntrackState ConntrackField = 1 << iota
	ConntrackProtocol
	ConntrackOriginalSource
	ConntrackOriginalDestination
	ConntrackReplySource
	ConntrackReplyDestination
	ConntrackStatus
	ConntrackExpires
	ConntrackOriginalSourcePort
	ConntrackOriginalDestinationPort
	ConntrackReplySourcePort
	ConntrackReplyDestinationPort
	ConntrackDirection
)

// conntrackOptions are the names of the options for the fields, in the order of the bits.
var conntrackOptions = [...]string{
	"ctstate", "ctproto", "ctorigsrc", "ctorigdst", "ctreplsrc", "ctrepldst", "ctstatus",
	"ctexpire", "ctorigsrcport", "ctorigdstport", "ctreplsrcport", "ctrepldstport", "ctdir",
}

// ConntrackFieldOf returns the field of an option, such as "--ctproto", or 0.
func ConntrackFieldOf(option string) ConntrackField {
	for i, name := range conntrackOptions {
		if option == "--"+name {
			return 1 << i
		}
	}
	return 0
}

// A Conntrack is a match conntrack that the model cannot represent (struct xt_conntrack_mtinfo3).
type Conntrack struct {
	// Fields are the compared fields, and Not is the subset of Fields that is negated. The negated
	// direction is the reply direction.
	Fields, Not ConntrackField
	// Numbers contains the first and the last value of each field with a number, indexed by the
	// bit number of the field. Both are the same for a single value, and for the state and the
	// status, whose values are bit masks of the kernel. The values of fields that are not in Fields
	// have no meaning.
	Numbers [len(conntrackOptions)][2]uint32
	// Prefixes contains the prefixes of the four addresses, in the order of their fields.
	Prefixes [4]netip.Prefix
}

// addressFields are the fields with an address. firstAddress is the bit number of the first field
// with an address, and firstPort the bit number of the first field with a port.
const (
	addressFields = ConntrackOriginalSource | ConntrackOriginalDestination | ConntrackReplySource |
		ConntrackReplyDestination
	firstAddress = 2
	firstPort    = 8
)

// SetPrefix sets the prefix of a field with an address.
func (c *Conntrack) SetPrefix(f ConntrackField, p netip.Prefix) {
	c.Prefixes[bits.TrailingZeros16(uint16(f))-firstAddress] = p.Masked()
}

// SetNumbers sets the first and the last value of a field.
func (c *Conntrack) SetNumbers(f ConntrackField, first, last uint32) {
	c.Numbers[bits.TrailingZeros16(uint16(f))] = [2]uint32{first, last}
}

// namedStates contains the states in the order in which iptables-save prints them
// (libxt_conntrack.c).
var namedStates = [...]rules.State{
	rules.Invalid, rules.New, rules.Related, rules.Established, rules.Untracked, rules.SNAT, rules.DNAT,
}

// stateText returns iptables' names of the states of a mask, separated by commas, or "NONE".
func stateText(mask uint32) string {
	var names []string
	for _, s := range namedStates {
		if mask&uint32(conntrackStates[s]) != 0 {
			names = append(names, strings.ToUpper(s.String()))
		}
	}
	return cmp.Or(strings.Join(names, ","), "NONE")
}

// NamedStatus contains the status bits that iptables names. iptables matches the other bits as
// states.
const NamedStatus = rules.StatusExpected | rules.StatusSeenReply | rules.StatusAssured |
	rules.StatusConfirmed

// StatusText returns iptables' names of status bits in NamedStatus, separated by commas, or "NONE".
func StatusText(s rules.Status) string {
	if s == 0 {
		return "NONE"
	}
	return strings.ToUpper(strings.ReplaceAll(s.String(), "-", "_"))
}

// String returns the text of iptables-save, which identifies the match.
func (c *Conntrack) String() string {
	var b strings.Builder
	b.WriteString("-m conntrack")
	for i, name := range conntrackOptions {
		f := ConntrackField(1) << i
		if c.Fields&f == 0 {
			continue
		}
		numbers, not := c.Numbers[i], c.Not&f != 0
		if f == ConntrackDirection {
			b.WriteString(map[bool]string{false: " --ctdir ORIGINAL", true: " --ctdir REPLY"}[not])
			continue
		}
		fmt.Fprintf(&b, " %s--%s ", negation(not), name)
		switch {
		case f&addressFields != 0:
			b.WriteString(prefixText(c.Prefixes[i-firstAddress]))
		case f == ConntrackState:
			b.WriteString(stateText(numbers[0]))
		case f == ConntrackStatus:
			b.WriteString(StatusText(rules.Status(numbers[0])))
		case numbers[0] == numbers[1]:
			fmt.Fprint(&b, numbers[0])
		default:
			fmt.Fprintf(&b, "%d:%d", numbers[0], numbers[1])
		}
	}
	return b.String()
}

// prefixText returns a prefix, or only its address if it is the prefix of a single address.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// StateBits returns the kernel's bits of states.
func StateBits(states rules.StateSet) uint32 {
	var mask uint16
	for state, bit := range conntrackStates {
		if states.Has(rules.State(state)) {
			mask |= bit
		}
	}
	return uint32(mask)
}

// Offsets in struct xt_conntrack_mtinfo3. The ports of revisions 1 and 2 have no upper bounds.
const (
	conntrackAddressSize    = 2 * addrSize // an address and its mask
	conntrackExpiresOffset  = 128
	conntrackProtocolOffset = 136
	conntrackPortOffset     = 138
	conntrackLastPortOffset = 154
)

// conntrackText returns the text of a match conntrack of revision 2 or 3 in a rule of the family.
// It returns false for other revisions, and if the text would not identify the match.
func conntrackText(family rules.Family, x Extension) (string, bool) {
	const known = ConntrackDirection<<1 - 1
	if x.Revision < 2 || int(x.Revision) >= len(conntrackSizes) ||
		len(x.Data) < conntrackSizes[x.Revision] || family == rules.Inet {
		return "", false
	}
	data := x.Data
	fields := native.Uint16(data[conntrackFlagsOffset:]) &^ stateAliasFlag
	negated := native.Uint16(data[conntrackInvertOffset:]) &^ stateAliasFlag
	c := Conntrack{Fields: ConntrackField(fields), Not: ConntrackField(negated)}
	if c.Fields == 0 || c.Fields&^known != 0 || c.Not&^c.Fields != 0 {
		return "", false
	}
	for i := range c.Prefixes {
		if c.Fields&(1<<(firstAddress+i)) == 0 {
			continue
		}
		field := data[i*conntrackAddressSize:]
		ones, width := net.IPMask(field[addrSize : addrSize+familySize(family)]).Size()
		if width == 0 { // not the mask of a prefix
			return "", false
		}
		c.Prefixes[i] = netip.PrefixFrom(decodeAddr(family, field[:addrSize]), ones).Masked()
	}
	state := native.Uint16(data[conntrackMaskOffset:])
	status := native.Uint16(data[conntrackMaskOffset+2:])
	_, areStatesNamed := statesOf(state, conntrackStates[:])
	if c.Fields&ConntrackState != 0 && !areStatesNamed ||
		c.Fields&ConntrackStatus != 0 && status&^uint16(NamedStatus) != 0 {
		return "", false
	}
	c.SetNumbers(ConntrackState, uint32(state), uint32(state))
	c.SetNumbers(ConntrackStatus, uint32(status), uint32(status))
	c.SetNumbers(ConntrackExpires, native.Uint32(data[conntrackExpiresOffset:]),
		native.Uint32(data[conntrackExpiresOffset+4:]))
	protocol := uint32(native.Uint16(data[conntrackProtocolOffset:]))
	c.SetNumbers(ConntrackProtocol, protocol, protocol)
	for i := range 4 {
		first, last := data[conntrackPortOffset+2*i:], data[conntrackPortOffset+2*i:]
		number := native.Uint16
		if x.Revision == 2 { // a single port in network byte order
			number = network.Uint16
		} else {
			last = data[conntrackLastPortOffset+2*i:]
		}
		c.SetNumbers(1<<(firstPort+i), uint32(number(first)), uint32(number(last)))
	}
	return c.String(), true
}
