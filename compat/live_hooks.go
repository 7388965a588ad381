package compat

import (
	"cmp"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A chainID identifies a base chain of nf_tables or, if chain is empty, a table of iptables-legacy.
// The kernel's functions for NAT and conntrack have pseudo IDs.
type chainID struct {
	family       rules.Family
	table, chain string
	nat          bool // a NAT chain, which the kernel's NAT function may call
}

// hookOrder contains the positions in the kernel's lists of hook functions, by family and hook.
type hookOrder map[hookKey]map[chainID]int

type hookKey struct {
	family rules.Family
	hook   rules.Hook
}

// natFunction represents the kernel's NAT function. It may call NAT chains that the kernel does not
// list.
var natFunction = chainID{nat: true}

// conntrackFunction represents the kernel's conntrack function. The name of a chain contains no
// zero byte, so no chain has this ID.
var conntrackFunction = chainID{table: "conntrack", chain: "\x00"}

// newHookOrder returns an index of the lists.
func newHookOrder(lists []nft.HookList) hookOrder {
	o := hookOrder{}
	for _, l := range lists {
		positions := map[chainID]int{}
		for i, f := range l.Functions {
			switch f.Kind {
			case nft.HookChain, nft.HookLegacy:
				positions[chainID{family: f.Family, table: f.Table, chain: f.Chain}] = i
			case nft.HookNAT:
				positions[natFunction] = i
			case nft.HookConntrack:
				if f.Priority == rules.ConntrackPriority {
					positions[conntrackFunction] = i
				}
			}
		}
		o[hookKey{l.Family, l.Hook}] = positions
	}
	return o
}

// listsChain reports whether a chain is listed in each of its families.
func (o hookOrder) listsChain(h rules.Hook, id chainID) bool {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if id.family == rules.Inet || id.family == f {
			if _, ok := o.position(f, h, id); !ok {
				return false
			}
		}
	}
	return true
}

// position returns the position of a chain in the list of a family. For a NAT chain that the kernel
// does not list, it returns the position of the NAT function.
func (o hookOrder) position(f rules.Family, h rules.Hook, id chainID) (int, bool) {
	positions := o[hookKey{f, h}]
	isNAT := id.nat
	id.nat = false
	i, ok := positions[id]
	if !ok && isNAT {
		i, ok = positions[natFunction]
	}
	return i, ok
}

// sideOfConntrack returns -1 for a chain that is listed before conntrack in each of its families, 1
// for a chain that is listed after conntrack in each, and 0 if the order is unknown in a family or
// differs between the families.
func (o hookOrder) sideOfConntrack(h rules.Hook, id chainID) int {
	side := 0
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if id.family != rules.Inet && id.family != f {
			continue
		}
		chain, chainListed := o.position(f, h, id)
		conntrack, conntrackListed := o.position(f, h, conntrackFunction)
		familySide := cmp.Compare(chain, conntrack)
		if !chainListed || !conntrackListed || side == -familySide {
			return 0
		}
		side = familySide
	}
	return side
}
