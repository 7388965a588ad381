package nft

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// An UnmodeledChain is a base chain that the model does not support: its family is not ip, ip6 or
// inet, or it is attached to devices. Its rules are not read.
type UnmodeledChain struct {
	// Family is nft's name of the table's family.
	Family, Table, Chain string
	// Hook is nft's name of the hook. Devices contains the devices that the hook is attached to; it
	// is empty for a hook of all devices.
	Hook    string
	Devices []string
	Rules   int  // the number of rules
	Drop    bool // the policy is drop
}

// String describes the chain in one line.
func (c UnmodeledChain) String() string {
	text := fmt.Sprintf("table %s %s chain %s at %s", c.Family, c.Table, c.Chain, c.Hook)
	if len(c.Devices) > 0 {
		text += " of " + strings.Join(c.Devices, ", ")
	}
	text += fmt.Sprintf(" (%d rules", c.Rules)
	if c.Rules == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if c.Drop {
		text += ", policy drop"
	}
	return text + ")"
}

// unmodeledChains collects the base chains that affect packets and that the model does not
// support.
type unmodeledChains struct {
	dormant map[tableID]bool
	chains  []UnmodeledChain
	// hasOwnedTable reports that a process owns a table of any family; see [rules.Table.Owned].
	hasOwnedTable bool
}

// A tableID identifies a table. The family is the kernel's number.
type tableID struct {
	family uint8
	name   string
}

// addTable records a table of any family if a process owns the table, or if the table is dormant:
// the kernel does not call its chains.
func (u *unmodeledChains) addTable(family uint8, a attributes) {
	flags := a.Number(unix.NFTA_TABLE_FLAGS)
	u.hasOwnedTable = u.hasOwnedTable || flags&nftTableFlagOwner != 0
	if flags&unix.NFT_TABLE_F_DORMANT == 0 {
		return
	}
	if u.dormant == nil {
		u.dormant = map[tableID]bool{}
	}
	u.dormant[tableID{family, a.Text(unix.NFTA_TABLE_NAME)}] = true
}

// addChain adds a chain of any family if the model does not support the chain and the chain affects
// packets.
func (u *unmodeledChains) addChain(family uint8, a attributes) {
	hook := attributes(a.Get(unix.NFTA_CHAIN_HOOK))
	table := a.Text(unix.NFTA_CHAIN_TABLE)
	hookNumber := hook.Number(unix.NFTA_HOOK_HOOKNUM)
	_, isFamilySupported := decodeFamily(family)
	isSupported := isFamilySupported && hookNumber != uint32(rules.Ingress)
	if isBase := hook != nil; !isBase || isSupported || u.dormant[tableID{family, table}] {
		return
	}
	c := UnmodeledChain{
		Family: familyName(family), Table: table, Chain: a.Text(unix.NFTA_CHAIN_NAME),
		Hook:    hookName(family, hookNumber),
		Devices: devices(hook),
		// The use count of a base chain is the number of its rules, because no rule can jump to a
		// base chain (nft_use_inc in net/netfilter/nf_tables_api.c).
		Rules: int(a.Number(unix.NFTA_CHAIN_USE)),
		Drop: a.Get(unix.NFTA_CHAIN_POLICY) != nil &&
			a.Number(unix.NFTA_CHAIN_POLICY) == uint32(expr.VerdictDrop),
	}
	if c.Rules > 0 || c.Drop {
		u.chains = append(u.chains, c)
	}
}

// devices returns the devices of a hook. A hook has one device, or several since Linux 5.5.
func devices(hook attributes) []string {
	var names []string
	if name := hook.Text(unix.NFTA_HOOK_DEV); name != "" {
		names = append(names, name)
	}
	attributes(hook.Get(nftaHookDevs)).Each(func(_ uint16, value []byte) {
		if name := nlmsg.Text(value); len(names) == 0 || names[0] != name {
			names = append(names, name)
		}
	})
	return names
}

// familyName returns nft's name of a family, or the number of an unknown family.
func familyName(family uint8) string {
	if f, ok := decodeFamily(family); ok {
		return f.String()
	}
	return cmp.Or(map[uint8]string{
		unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_ARP: "arp",
	}[family], fmt.Sprint(family))
}

// hookName returns nft's name of the hook with the number. The numbers depend on the family
// (linux/netfilter.h, netfilter_arp.h).
func hookName(family uint8, number uint32) string {
	var names []string
	switch family {
	case unix.NFPROTO_NETDEV:
		names = []string{"ingress", "egress"}
	case unix.NFPROTO_ARP:
		names = []string{"input", "output", "forward"}
	default:
		if number <= uint32(rules.Ingress) {
			return rules.Hook(number).String()
		}
	}
	return keyName(names, number)
}
