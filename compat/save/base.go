package save

import (
	"slices"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// priority returns the priority of the table's chains (enum nf_ip_hook_priorities in
// linux/netfilter_ipv4.h), except chains for source NAT.
func priority(table string) int {
	switch table {
	case "raw":
		return rules.IstioRawPriority
	case "mangle":
		return rules.IstioManglePriority
	case "nat":
		return rules.IstioNATPriority
	case "security":
		return 50
	}
	return 0
}

// sourceNATPriority is the priority of chains for source NAT (NF_IP_PRI_NAT_SRC).
const sourceNATPriority = 100

// builtInHooks returns the hooks of the table's built-in chains, in the order of the kernel's
// numbers. It returns nil if iptables has no such table.
func builtInHooks(table string) []rules.Hook {
	switch table {
	case "raw":
		return []rules.Hook{rules.Prerouting, rules.Output}
	case "mangle":
		return []rules.Hook{
			rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting,
		}
	case "nat":
		return []rules.Hook{rules.Prerouting, rules.Input, rules.Output, rules.Postrouting}
	case "filter", "security":
		return []rules.Hook{rules.Input, rules.Forward, rules.Output}
	}
	return nil
}

// Base returns the type, hook, priority and policy of the built-in chain of a table at a hook. drop
// sets the policy DROP.
func Base(table string, hook rules.Hook, drop bool) *rules.Base {
	b := &rules.Base{Hook: hook, Priority: priority(table), Drop: drop}
	switch {
	case table == "nat":
		b.Type = rules.NAT
		if hook == rules.Input || hook == rules.Postrouting {
			b.Priority = sourceNATPriority
		}
	case table == "mangle" && hook == rules.Output:
		b.Type = rules.Route
	}
	return b
}

// HookOf returns the hook of a built-in chain of the table, and reports whether the table has the
// chain.
func HookOf(table, chain string) (rules.Hook, bool) {
	i := slices.Index(xt.BuiltInChains[:], chain)
	if i < 0 {
		return 0, false
	}
	hook := rules.Hook(i)
	return hook, slices.Contains(builtInHooks(table), hook)
}
