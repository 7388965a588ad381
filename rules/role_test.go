package rules_test

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// roleOf returns the direction and outcome of the only rule with a role that a packet matches.
func roleOf(t *testing.T, rs rules.Ruleset, packet string) string {
	t.Helper()
	role := ""
	for _, pass := range diff.Explain(&rs, must(rules.ParsePacket(packet))).Passes {
		for _, s := range pass.Steps {
			if r := s.Rule().Role; r != rules.NoRole {
				if role != "" {
					t.Errorf("%s: a second rule has a role: %s", packet, s)
				}
				role = fmt.Sprint(r.Direction(), " ", r.Outcome())
			}
		}
	}
	return role
}

func TestRolesOfDecidingRules(t *testing.T) {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.DropInvalid = true, true, true
	r.DNS = rules.DNS{Capture: true, All: true}
	r.InboundExcludePorts = rules.Singles[uint16](9090)
	r.OutboundExcludePorts = rules.Singles[uint16](5432)
	r.OutboundPorts = rules.Singles[uint16](8443)
	r.OutboundExcludeCIDRs = must(rules.ParsePrefixes("192.0.2.0/24"))
	r.OwnerGroupsExclude = rules.Singles[uint32](7)
	r.ExcludeInterfaces = []rules.InterfaceName{{Name: "eth1"}}
	r.RerouteInterfaces = []rules.InterfaceName{{Name: "vnet0"}}
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		r.Mode = mode
		rs := rules.MustCompile(r)
		for _, tc := range [][2]string{
			{"in tcp 10.1.1.1:1 > 10.244.1.5:80", "inbound captured"},
			{"in tcp 10.1.1.1:1 > 10.244.1.5:9090", "inbound excluded_port"},
			{"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev eth1", "inbound excluded_interface"},
			{"in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid", "inbound dropped_invalid"},
			{"in tcp 10.1.1.1:1 > 10.244.1.5:15008", ""},
			{"in tcp 10.1.1.1:1 > 10.9.9.9:80 dev vnet0", "outbound captured"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000", "outbound captured"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:8443 uid 1000", "outbound captured"},
			{"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", "outbound captured_dns"},
			{"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", "outbound captured_dns"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:5432 uid 1000", "outbound excluded_port"},
			{"out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", "outbound excluded_cidr"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 7", "outbound excluded_owner"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 dev eth1", "outbound excluded_interface"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1337", "outbound proxy"},
			{"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 0 gid 1337", "outbound proxy"},
			{"out tcp 127.0.0.1:1 > 127.0.0.1:80 uid 1000", ""},
			{"out tcp 127.0.0.1:1 > 10.244.1.5:80 uid 1337 dev lo", "inbound captured"},
		} {
			if got := roleOf(t, rs, tc[0]); got != tc[1] {
				t.Errorf("%s: %s: the role is %q, want %q", mode, tc[0], got, tc[1])
			}
		}
	}
}

func TestEachRoleHasItsOwnName(t *testing.T) {
	names := map[string]rules.Role{}
	for _, r := range rules.Roles() {
		name := r.Direction() + " " + r.Outcome()
		if other, taken := names[name]; taken || r.Direction() == "" || r.Outcome() == "" {
			t.Errorf("role %d is named %q, want a direction and an outcome that differ from role %d",
				r, name, other)
		}
		names[name] = r
	}
	if len(names) != int(rules.RoleCount)-1 {
		t.Errorf("%d names, want %d", len(names), rules.RoleCount-1)
	}
}
