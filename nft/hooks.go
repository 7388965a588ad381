package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// FeatureHooks is required by [Hooks]. Many distributions do not enable it.
var FeatureHooks = Feature{
	"lists of the functions at a hook", "CONFIG_NETFILTER_NETLINK_HOOK", "5.14",
}

// A HookList lists the functions that the kernel calls for packets of a family at a hook, in order.
type HookList struct {
	Family    rules.Family // IPv4 or IPv6
	Hook      rules.Hook
	Functions []HookFunction
}

// A HookFunction is a function at a hook.
type HookFunction struct {
	Kind     HookKind
	Priority int
	// Name is the symbol of the function, and Module its module; empty if the kernel does not
	// report it or it is built in.
	Name, Module string
	// Family and Table are the table of an nftables chain or of iptables-legacy, Chain is the
	// chain. The family of a table of iptables-legacy is the family of the list.
	Family rules.Family
	Table  string
	Chain  string
}

// String returns a description of the function in a line.
func (f HookFunction) String() string {
	switch f.Kind {
	case HookChain:
		return fmt.Sprintf("%d: chain %s %s %s", f.Priority, f.Family, f.Table, f.Chain)
	case HookLegacy:
		return fmt.Sprintf("%d: table %s %s of iptables-legacy", f.Priority, f.Family, f.Table)
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
	HookOther     HookKind = iota // a BPF program, or anything else
	HookChain                     // a base chain of nftables
	HookLegacy                    // a table of iptables-legacy
	HookConntrack                 // finds or confirms the packet's connection
	// HookNAT translates: it calls the base chains of NAT and the nat table of iptables-legacy, in
	// the order of their own priorities, and of equal ones first what was registered last. No
	// kernel up to Linux 7.2 lists these; later ones list them instead of HookNAT.
	HookNAT
	HookDefrag // puts fragments together
	// HookLabel is a function of a security module: SELinux, Smack or AppArmor. SELinux and Smack
	// write a label to packets that leave, and drop those to which they cannot write it; AppArmor
	// checks packets that have a mark of the security table. All namespaces of the host have it.
	HookLabel
)

// Hooks returns the functions at prerouting, output and postrouting in the namespace (nil: the
// current one), for both families. [IsNotSupported] is true for the error if the kernel does not
// list them, and [IsNotPermitted] without permission. It writes nothing.
func Hooks(ns *netns.NS) ([]HookList, error) {
	var lists []HookList
	err := inside(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		lists, err = c.hooks()
		return err
	})
	return lists, err
}

// hooks implements Hooks with a socket.
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

// hookList repeats a dump until the functions have not changed during it.
func (c *conn) hookList(family rules.Family, hook rules.Hook) (HookList, error) {
	const messageHook = unix.NFNL_SUBSYS_HOOK << 8 // and NFNL_MSG_HOOK_GET, which is 0
	q := requestHeader{messageHook, messageHook, unix.NLM_F_DUMP, nfproto(family)}
	for range maxReads {
		l := HookList{Family: family, Hook: hook}
		interrupted, err := c.exchange(q,
			func(m *messages) { m.number(nfnlaHookNumber, hookNumbers[hook]) },
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
