package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// FeatureHooks is the feature that [Hooks] needs. Many distributions do not enable it.
var FeatureHooks = Feature{
	"lists of the functions at a hook", "CONFIG_NETFILTER_NETLINK_HOOK", "5.14",
}

// A HookList lists the functions that the kernel calls for packets of a family at a hook, in order.
type HookList struct {
	Family    rules.Family // IPv4 or IPv6
	Hook      rules.Hook
	Functions []HookFunction
}

// A HookFunction is a function that the kernel calls at a hook.
type HookFunction struct {
	Kind     HookKind
	Priority int
	// Name is the symbol of the function. Module is its kernel module, empty if the function is
	// built in. Both are empty if the kernel does not report them.
	Name, Module string
	// Family, Table and Chain identify an nftables chain. For an iptables-legacy table, Chain is
	// empty and Family is [HookList.Family].
	Family rules.Family
	Table  string
	Chain  string
}

// String describes the function in one line.
func (f HookFunction) String() string {
	switch f.Kind {
	case HookChain:
		return fmt.Sprintf("%d: chain %s %s %s", f.Priority, f.Family, f.Table, f.Chain)
	case HookLegacy:
		return fmt.Sprintf("%d: iptables-legacy table %s %s", f.Priority, f.Family, f.Table)
	}
	text := fmt.Sprintf("%d: %s", f.Priority, f.Name)
	if f.Module != "" {
		text += " of module " + f.Module
	}
	return text
}

// A HookKind is the kind of a function at a hook.
type HookKind uint8

// The kinds of functions.
const (
	HookOther     HookKind = iota // a function of no other kind, such as a BPF program
	HookChain                     // an nftables base chain
	HookLegacy                    // an iptables-legacy table
	HookConntrack                 // conntrack: finds or confirms a connection, or calls its helper
	// HookNAT is the kernel's NAT function. It calls the NAT base chains and the nat table of
	// iptables-legacy in the order of their priorities. Among chains of equal priority, the chain
	// that was registered last comes first. Up to Linux 7.2 the kernel does not list these
	// chains. Later kernels list them instead of HookNAT.
	HookNAT
	HookDefrag // the function that reassembles fragments
	// HookLabel is a function of a security module: SELinux, Smack or AppArmor. SELinux and Smack
	// write a label to outgoing packets, and drop a packet if they cannot label it. AppArmor checks
	// packets that have a mark of the security table. The function exists in all namespaces of the
	// host.
	HookLabel
)

// Hooks returns the functions at prerouting, output and postrouting in the namespace (nil: the
// current one), for IPv4 and IPv6. The kernel may load the module nfnetlink_hook, which has no
// effect on packets. [IsNotSupported] reports true for the error of Hooks if the kernel cannot list
// the functions, and [IsNotPermitted] if the process lacks the permission.
func Hooks(ns *netns.NS) ([]HookList, error) { return withSocket(ns, (*conn).hooks) }

// hooks is Hooks in the namespace of the socket.
func (c *conn) hooks() ([]HookList, error) {
	var lists []HookList
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		for _, h := range []rules.Hook{rules.Prerouting, rules.Output, rules.Postrouting} {
			l, err := c.hookList(f, h)
			if err != nil {
				return nil, err
			}
			lists = append(lists, l)
		}
	}
	return lists, nil
}

// hookList repeats the dump of a hook until no function changes during the dump.
func (c *conn) hookList(family rules.Family, hook rules.Hook) (HookList, error) {
	const messageHook = unix.NFNL_SUBSYS_HOOK << 8 // and NFNL_MSG_HOOK_GET, which is 0
	h := requestHeader{messageHook, messageHook, unix.NLM_F_DUMP, nfproto(family)}
	for range maxReads {
		l := HookList{Family: family, Hook: hook}
		interrupted, err := c.exchange(h,
			func(m *messages) { m.addNumber(nfnlaHookNumber, uint32(hook)) },
			func(_ uint8, a attributes) {
				l.Functions = append(l.Functions, decodeHook(family, a))
			})
		switch {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) ||
			errors.Is(err, unix.EOPNOTSUPP):
			return l, &UnsupportedError{Feature: FeatureHooks, Err: err}
		case err != nil:
			return l, explainRead(fmt.Sprintf("list the functions at hook %s of %s", hook, family), err)
		case !interrupted:
			return l, nil
		}
	}
	return HookList{}, errBusy
}

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
// or "". The module option raw_before_defrag selects -450 for raw. nat has one priority for
// destination NAT and one for source NAT.
func legacyTableAt(priority int) string {
	return map[int]string{
		-450: "raw", -300: "raw", -150: "mangle", -100: "nat", 0: "filter", 50: "security", 100: "nat",
	}[priority]
}
