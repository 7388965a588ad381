package nft

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Numbers from linux/netfilter/nfnetlink_hook.h.
const (
	nfnlaHookNumber    = 1
	nfnlaHookPriority  = 2
	nfnlaHookFunction  = 4
	nfnlaHookModule    = 5
	nfnlaHookChainInfo = 6

	nfnlaHookInfoDescription = 1
	nfnlaHookInfoType        = 2
	nfnlHookTypeNFTables     = 1

	nfnlaChainTable  = 1
	nfnlaChainFamily = 2
	nfnlaChainName   = 3
)

// decodeHook decodes a function of a list. family is [HookList.Family].
func decodeHook(family rules.Family, a attributes) HookFunction {
	f := HookFunction{
		Priority: int(int32(a.Number(nfnlaHookPriority))), Name: a.Text(nfnlaHookFunction),
		Module: a.Text(nfnlaHookModule),
	}
	info := attributes(a.Get(nfnlaHookChainInfo))
	if info.Number(nfnlaHookInfoType) == nfnlHookTypeNFTables &&
		f.setChain(info.Get(nfnlaHookInfoDescription)) {
		return f
	}
	f.Kind = hookKind(f.Name)
	if f.Kind == HookLegacy {
		f.Family, f.Table = family, legacyTable(f)
	}
	return f
}

// setChain sets the chain of the function from its description. It returns false and changes
// nothing if the model does not support the chain's family.
func (f *HookFunction) setChain(a attributes) bool {
	number := a.Get(nfnlaChainFamily)
	if len(number) != 1 {
		return false
	}
	family, ok := decodeFamily(number[0])
	if ok {
		f.Kind, f.Family, f.Table, f.Chain = HookChain, family, a.Text(nfnlaChainTable),
			a.Text(nfnlaChainName)
	}
	return ok
}

// hookKind returns the kind of a function, which it derives from the prefix of its symbol.
func hookKind(function string) HookKind {
	for _, known := range []struct {
		prefix string
		kind   HookKind
	}{
		// The symbol is ipt_do_table since Linux 5.16, except for mangle. Before, it was
		// iptable_raw_hook, iptable_filter_hook and so on.
		{"ipt_do_table", HookLegacy},
		{"ip6t_do_table", HookLegacy},
		{"iptable_", HookLegacy},
		{"ip6table_", HookLegacy},
		{"nf_nat_", HookNAT},
		{"ipv4_conntrack_defrag", HookDefrag},
		{"ipv6_defrag", HookDefrag},
		{"ipv4_conntrack_", HookConntrack},
		{"ipv6_conntrack_", HookConntrack},
		// Conntrack's functions at postrouting. Since Linux 6.4 the only one is nf_confirm.
		{"nf_confirm", HookConntrack},
		{"ipv4_confirm", HookConntrack},
		{"ipv6_confirm", HookConntrack},
		{"ipv4_helper", HookConntrack},
		{"ipv6_helper", HookConntrack},
		// The symbol is selinux_ip_output since Linux 5.17. Before, it was selinux_ipv4_output and
		// selinux_ipv6_output. Smack's symbols have the same form.
		{"selinux_ip", HookLabel},
		{"smack_ip", HookLabel},
		{"apparmor_ip", HookLabel},
	} {
		if strings.HasPrefix(function, known.prefix) {
			return known.kind
		}
	}
	return HookOther
}

// legacyTable returns the name of a function's iptables-legacy table: from the symbol if it
// contains the name, otherwise from the priority.
func legacyTable(f HookFunction) string {
	_, name, _ := strings.Cut(f.Name, "table_")
	if table, _, ok := strings.Cut(name, "_"); ok {
		return table
	}
	return legacyTableAt(f.Priority)
}

// legacyTableAt returns the iptables-legacy table with the priority (enum nf_ip_hook_priorities),
// or "". A module option of raw selects -450. nat has one priority for destination NAT and one for
// source NAT.
func legacyTableAt(priority int) string {
	return map[int]string{
		-450: "raw", -300: "raw", -150: "mangle", -100: "nat", 0: "filter", 50: "security", 100: "nat",
	}[priority]
}
