package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// FeatureHooks is needed by [Hooks]. Many distributions leave it out.
var FeatureHooks = Feature{"lists of the functions at a hook", "CONFIG_NETFILTER_NETLINK_HOOK", "5.14"}

// A HookList is what the kernel calls for the packets of a family at a hook, in this order.
type HookList struct {
	Family    rules.Family // IPv4 or IPv6
	Hook      rules.Hook
	Functions []HookFunction
}

// A HookFunction is something that the kernel calls at a hook.
type HookFunction struct {
	Kind     HookKind
	Priority int
	// Name is the function's symbol, and Module the module that it is in; empty if the kernel does
	// not tell, or has it built in.
	Name, Module string
	// Family and Table name the table of an nftables chain or of iptables-legacy, Chain the chain.
	// Of a table of iptables-legacy the family is the list's.
	Family rules.Family
	Table  string
	Chain  string
}

// String names the function in a line.
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

// A HookKind says what a function at a hook does.
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

// Hooks lists what the kernel calls at prerouting, output and postrouting in the namespace (nil: the
// current one), for both families. On a kernel that has no such lists the error answers [IsNotSupported],
// without the right to ask [IsNotPermitted]. It writes nothing.
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

// hooks is Hooks over a socket.
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
	q := question{messageHook, messageHook, unix.NLM_F_DUMP, nfproto(family)}
	for range maxReads {
		l := HookList{Family: family, Hook: hook}
		interrupted, err := c.ask(q,
			func(m *messages) { m.number(nfnlaHookNumber, hookNumbers[hook]) },
			func(_ uint8, a attributes) { l.Functions = append(l.Functions, decodeHook(family, a)) })
		switch {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP):
			return l, &UnsupportedError{Feature: FeatureHooks, Err: err}
		case err != nil:
			return l, explainRead(fmt.Sprintf("list what is at hook %s of %s", hook, family), err)
		case !interrupted:
			return l, nil
		}
	}
	return HookList{}, errBusy
}
