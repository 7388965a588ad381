package rules

import "slices"

// A Role is the outcome of the connections that a rule decides about. Only compiled rules have
// roles: the kernel does not store them. A packet matches at most one rule with an inbound role,
// and at most one with an outbound role.
type Role uint8

// The roles.
const (
	// NoRole is the role of rules that decide none of the outcomes below.
	NoRole Role = iota

	InboundCaptured
	InboundExcludedPort
	InboundExcludedInterface
	InboundDroppedInvalid // packets that conntrack considers invalid

	OutboundCaptured
	OutboundDNS // captured by the sidecar's DNS proxy
	OutboundExcludedPort
	OutboundExcludedCIDR
	OutboundExcludedOwner
	OutboundExcludedInterface
	OutboundProxy // sent by the proxy itself, which is identified by its user or group

	// RoleCount is the number of roles, including NoRole.
	RoleCount
)

// roleNames are the directions and outcomes of the roles.
var roleNames = [RoleCount]struct{ direction, outcome string }{
	InboundCaptured:           {"inbound", "captured"},
	InboundExcludedPort:       {"inbound", "excluded_port"},
	InboundExcludedInterface:  {"inbound", "excluded_interface"},
	InboundDroppedInvalid:     {"inbound", "dropped_invalid"},
	OutboundCaptured:          {"outbound", "captured"},
	OutboundDNS:               {"outbound", "captured_dns"},
	OutboundExcludedPort:      {"outbound", "excluded_port"},
	OutboundExcludedCIDR:      {"outbound", "excluded_cidr"},
	OutboundExcludedOwner:     {"outbound", "excluded_owner"},
	OutboundExcludedInterface: {"outbound", "excluded_interface"},
	OutboundProxy:             {"outbound", "proxy"},
}

// Roles returns all roles except NoRole.
func Roles() []Role {
	roles := make([]Role, 0, RoleCount-1)
	for r := NoRole + 1; r < RoleCount; r++ {
		roles = append(roles, r)
	}
	return roles
}

// Direction returns "inbound", "outbound", or "" for NoRole.
func (r Role) Direction() string { return roleNames[r].direction }

// Outcome returns the outcome, such as "excluded_port"; "" for NoRole.
func (r Role) Outcome() string { return roleNames[r].outcome }

// A RolePackets is the number of packets that a rule with a role has counted.
type RolePackets struct {
	Role    Role
	Packets uint64
}

// PacketsByRule returns the packets that each rule with a role has counted, in the order of the
// rules. It takes the roles from desired and the counts from read. Both rulesets must be equal; see
// [Equal].
func PacketsByRule(desired, read Ruleset) []RolePackets {
	var counters []RolePackets
	for i := range desired.Tables {
		desiredTable := &desired.Tables[i]
		index := slices.IndexFunc(read.Tables, func(t Table) bool {
			return t.Family == desiredTable.Family && t.Name == desiredTable.Name
		})
		for _, c := range desiredTable.Chains {
			for j := range c.Rules {
				if role := c.Rules[j].Role; role != NoRole {
					hits := read.Tables[index].Chain(c.Name).Rules[j].Hits
					counters = append(counters, RolePackets{role, hits.Packets})
				}
			}
		}
	}
	return counters
}
