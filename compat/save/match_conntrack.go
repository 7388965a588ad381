package save

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// stateBits contains iptables' names of connection states, with their bits in a [rules.StateSet].
var stateBits = []namedBits{
	{"NEW", 1 << rules.New},
	{"ESTABLISHED", 1 << rules.Established},
	{"RELATED", 1 << rules.Related},
	{"INVALID", 1 << rules.Invalid},
	{"UNTRACKED", 1 << rules.Untracked},
	{"SNAT", 1 << rules.SNAT},
	{"DNAT", 1 << rules.DNAT},
}

// statusBits contains iptables' names of the bits of a [rules.Status].
var statusBits = []namedBits{
	{"NONE", 0},
	{"EXPECTED", uint8(rules.StatusExpected)},
	{"SEEN_REPLY", uint8(rules.StatusSeenReply)},
	{"ASSURED", uint8(rules.StatusAssured)},
	{"CONFIRMED", uint8(rules.StatusConfirmed)},
}

// matchConntrack parses the matches conntrack and state. A match with several options is unknown.
// It is not the conjunction of the options, because for a packet without a connection the kernel
// compares only the state (conntrack_mt in net/netfilter/xt_conntrack.c).
func (r *moduleReader) matchConntrack() []rules.Match {
	if len(r.options) == 0 {
		r.fail(r.flag, "an option after it")
		return nil
	}
	o := r.options[0]
	if len(r.options) > 1 {
		return r.unknownConnection()
	}
	switch w := o.values[0]; o.name {
	case "--ctstate", "--state":
		const want = "states: a list of NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED, SNAT and DNAT"
		set := r.bitSet(w, stateBits, want)
		return []rules.Match{rules.MatchState{Not: o.not, States: rules.StateSet(set)}}
	case "--ctstatus":
		const want = "status bits: NONE, or a list of EXPECTED, SEEN_REPLY, ASSURED and CONFIRMED"
		set := r.bitSet(w, statusBits, want)
		return []rules.Match{rules.MatchStatus{Not: o.not, Status: rules.Status(set)}}
	case "--ctdir":
		r.rejectNegation(o.flag, o.not)
		reply := strings.EqualFold(w.text, "REPLY")
		if !reply && !strings.EqualFold(w.text, "ORIGINAL") {
			r.fail(w, "a direction: ORIGINAL or REPLY")
		}
		return []rules.Match{rules.MatchDirection{Reply: reply}}
	}
	return r.unknownConnection()
}

// unknownConnection records that the match is unknown, and returns nil. The text of the match is
// the text of the same match in the kernel, if all values are valid and no option is repeated.
func (r *moduleReader) unknownConnection() []rules.Match {
	r.isUnknown = true
	var c xt.Conntrack
	for _, o := range r.options {
		f := xt.ConntrackFieldOf(o.name)
		if f == 0 || c.Fields&f != 0 || !r.setConnectionField(&c, f, o.values[0]) {
			return nil
		}
		c.Fields |= f
		if o.not {
			c.Not ^= f
		}
	}
	r.text = c.String()
	return nil
}

// setConnectionField sets a field of c to the value of an option, and reports whether the value is
// valid.
func (r *moduleReader) setConnectionField(c *xt.Conntrack, f xt.ConntrackField, w word) bool {
	var first, last uint32
	ok := true
	switch f {
	case xt.ConntrackState:
		first = xt.StateBits(rules.StateSet(r.bitSet(w, stateBits, "states of connections")))
		last = first
	case xt.ConntrackStatus:
		first = uint32(r.bitSet(w, statusBits, "status bits of connections"))
		last = first
	case xt.ConntrackProtocol:
		p, isNamed := protocolNamed(strings.ToLower(w.text))
		n, isNumber := number(w.text, 8)
		first, ok = uint32(p)|uint32(n), isNamed || isNumber
		last = first
	case xt.ConntrackDirection:
		if strings.EqualFold(w.text, "REPLY") {
			c.Not |= f
		}
		ok = c.Not&f != 0 || strings.EqualFold(w.text, "ORIGINAL")
	case xt.ConntrackExpires:
		first, last, ok = numberRange(w.text, 32)
	case xt.ConntrackOriginalSource, xt.ConntrackOriginalDestination, xt.ConntrackReplySource,
		xt.ConntrackReplyDestination:
		return r.setConnectionAddress(c, f, w.text)
	default: // a port
		first, last, ok = numberRange(w.text, 16)
	}
	c.SetNumbers(f, first, last)
	return ok
}

// setConnectionAddress sets a field of c to an address or prefix, and reports whether the text is
// valid. It does not accept short addresses such as 10/8, because iptables reads them differently
// here than in -s and -d.
func (r *moduleReader) setConnectionAddress(
	c *xt.Conntrack, f xt.ConntrackField, text string,
) bool {
	address, mask, hasMask := strings.Cut(text, "/")
	a, ok := r.address(address)
	if !ok {
		return false
	}
	bits := a.BitLen()
	if hasMask {
		bits, ok = r.maskBits(mask, bits)
	}
	if !ok || bits < 0 {
		return false
	}
	c.SetPrefix(f, netip.PrefixFrom(a, bits))
	return true
}

// addConntrack adds the match conntrack for a match of the state, the status or the direction.
func (p *rulePrinter) addConntrack(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchState:
		if m.States == 0 {
			return fmt.Errorf("%s: iptables needs at least one state", m)
		}
		p.add("-m", "conntrack")
		p.addOption(m.Not, "--ctstate", strings.ToUpper(m.States.String()))
	case rules.MatchStatus:
		if m.Status&^xt.NamedStatus != 0 {
			return fmt.Errorf("%s: iptables matches snat and dnat as states, not as status bits", m)
		}
		p.add("-m", "conntrack")
		p.addOption(m.Not, "--ctstatus", xt.StatusText(m.Status))
	case rules.MatchDirection:
		direction := map[bool]string{false: "ORIGINAL", true: "REPLY"}[m.Reply]
		p.add("-m", "conntrack", "--ctdir", direction)
	}
	return nil
}
