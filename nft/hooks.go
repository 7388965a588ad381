package nft

import (
	"errors"
	"fmt"

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
	HookOther     HookKind = iota // any other function, such as a BPF program
	HookChain                     // an nftables base chain
	HookLegacy                    // an iptables-legacy table
	HookConntrack                 // conntrack's function that finds or confirms a connection
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
// current one), for IPv4 and IPv6. It changes nothing. [IsNotSupported] reports true for its error
// if the kernel cannot list the functions, and [IsNotPermitted] if the process lacks the
// permission.
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
