package save

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// priorities are those of the tables (enum nf_ip_hook_priorities of linux/netfilter_ipv4.h); source NAT has one of its own.
var priorities = map[string]int{
	"raw": rules.IstioRawPriority, "mangle": rules.IstioManglePriority, "nat": rules.IstioNATPriority, "filter": 0, "security": 50,
}

const sourceNATPriority = 100

// tableHooks are the hooks at which each table has a built-in chain, in the order of the kernel's numbers.
var tableHooks = map[string][]rules.Hook{
	"raw":      {rules.Prerouting, rules.Output},
	"mangle":   {rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting},
	"nat":      {rules.Prerouting, rules.Input, rules.Output, rules.Postrouting},
	"filter":   {rules.Input, rules.Forward, rules.Output},
	"security": {rules.Input, rules.Forward, rules.Output},
}

var chainNames = map[rules.Hook]string{
	rules.Prerouting: "PREROUTING", rules.Input: "INPUT", rules.Forward: "FORWARD", rules.Output: "OUTPUT",
	rules.Postrouting: "POSTROUTING",
}

// Base says how xtables attaches the built-in chain of a table at a hook. Drop is its policy.
func Base(table string, hook rules.Hook, drop bool) *rules.Base {
	b := &rules.Base{Hook: hook, Priority: priorities[table], Drop: drop}
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

// newTable returns a table with its built-in chains, empty and accepting; false if iptables has none of that name.
func newTable(family rules.Family, name string) (rules.Table, bool) {
	hooks, known := tableHooks[name]
	t := rules.Table{Family: family, Name: name}
	for _, h := range hooks {
		t.Chains = append(t.Chains, rules.Chain{Name: chainNames[h], Base: Base(name, h, false)})
	}
	return t, known
}

// HookOf returns the hook of the table's built-in chain with that name, and false if it has none.
func HookOf(table, chain string) (rules.Hook, bool) {
	for hook, name := range chainNames {
		if name == chain {
			return hook, slices.Contains(tableHooks[table], hook)
		}
	}
	return 0, false
}
