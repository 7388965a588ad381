package route

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// foundRule is a policy rule of the namespace.
type foundRule struct {
	// policy holds the fields that the rule shares with a policy route.
	policy rules.PolicyRoute
	// isPlain reports whether policy describes the rule completely: the rule has a mark, a table,
	// no other selector, and its action is the lookup of the table.
	isPlain bool
	action  uint8  // such as FR_ACT_TO_TBL
	mask    uint32 // the compared bits of the mark; 0: the rule has no mark as a selector
	// hasOthers reports whether the rule has a selector, an action or another field that policy
	// routes do not have. selectors and effects are the texts of these fields, before and after the
	// table in the syntax of the ip command.
	hasOthers          bool
	selectors, effects string
	selected           selection
}

// isOwned reports whether this package owns the rule.
func (r foundRule) isOwned() bool { return r.isPlain && r.policy.Priority == rules.PolicyPriority }

// isDefault reports whether a new namespace has the rule.
func (r foundRule) isDefault() bool {
	table, ok := map[int]uint32{
		0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT,
	}[r.policy.Priority]
	return ok && r.looksUp(table)
}

// looksUp reports whether the rule looks up the table for all packets.
func (r foundRule) looksUp(table uint32) bool {
	return !r.hasOthers && r.mask == 0 && r.policy.Table == table
}

// mayRoute reports whether the rule may determine the route of packets, or may determine which of
// the following rules are evaluated. The other rules drop packets or have no effect.
func (r foundRule) mayRoute() bool {
	switch r.action {
	case unix.FR_ACT_NOP, unix.FR_ACT_BLACKHOLE, unix.FR_ACT_UNREACHABLE, unix.FR_ACT_PROHIBIT:
		return false
	}
	return true
}

// dropsAll reports whether the rule drops every packet for which no earlier rule finds a route.
func (r foundRule) dropsAll() bool {
	switch r.action {
	case unix.FR_ACT_BLACKHOLE, unix.FR_ACT_UNREACHABLE, unix.FR_ACT_PROHIBIT:
		return r.mask == 0 && r.policy.Mark == 0 && r.selectors == ""
	}
	return false
}

// route returns the local route in the table of the rule, which need not exist.
func (r foundRule) route() localRoute { return localRoute{r.policy.Family, r.policy.Table} }

// decodeRule decodes the body of a message about a policy rule. The body begins with a struct
// fib_rule_hdr: family, dst_len, src_len, tos, table, res1, res2, action, and flags in 32 bits. The
// kernel omits attributes that are 0. The selectors and effects of the rule contain all other
// fields, even those that this package does not know.
func decodeRule(body []byte) (foundRule, error) {
	if len(body) < unix.SizeofRtMsg {
		return foundRule{}, nlmsg.ErrMalformed
	}
	r := foundRule{policy: rules.PolicyRoute{Family: FamilyOf(int(body[0]))}, action: body[7]}
	r.hasOthers = body[1] != 0 || body[2] != 0 || body[3] != 0 || r.action != unix.FR_ACT_TO_TBL ||
		native.Uint32(body[8:]) != 0
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	wellFormed := a.Each(func(kind uint16, value []byte) {
		switch n, _ := nlmsg.HostNumber(value); kind {
		case nl.FRA_PRIORITY:
			r.policy.Priority = int(n)
		case nl.FRA_FWMARK:
			r.policy.Mark = n
		case nl.FRA_FWMASK:
			r.mask = n
		case nl.FRA_TABLE:
			r.policy.Table = n
		case nl.FRA_PROTOCOL, nl.FRA_PAD: // the origin of the rule does not matter
		case nl.FRA_SUPPRESS_PREFIXLEN:
			r.hasOthers = r.hasOthers || n != ^uint32(0)
		default:
			r.hasOthers = true
		}
	})
	if !wellFormed {
		return foundRule{}, nlmsg.ErrMalformed
	}
	if r.mask != ^uint32(0) {
		r.policy.Mask = r.mask
	}
	if r.hasOthers {
		r.selectors, r.effects = ruleSelectors(body), ruleEffects(body)
		r.selected = decodeSelection(body)
	}
	r.isPlain = !r.hasOthers && r.policy.Mark != 0 && r.mask != 0 &&
		r.policy.Table != unix.RT_TABLE_UNSPEC
	return r, nil
}
