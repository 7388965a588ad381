package compat

import (
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A chainID identifies a base chain of nf_tables, or, without a chain, a table of iptables-legacy.
type chainID struct {
	family       rules.Family
	table, chain string
	nat          bool
}

// hookOrder contains the positions in the kernel's lists of hook functions, by family and hook.
type hookOrder map[hookPlace]map[chainID]int

type hookPlace struct {
	family rules.Family
	hook   rules.Hook
}

// translation represents the kernel's NAT function, which may call chains that the kernel does not
// list.
var translation = chainID{nat: true}

// conntrack represents the kernel's conntrack function.
var conntrack = chainID{table: "conntrack", chain: "\x00"}

// newHookOrder returns an index of the lists.
func newHookOrder(lists []nft.HookList) hookOrder {
	o := hookOrder{}
	for _, l := range lists {
		places := map[chainID]int{}
		for i, f := range l.Functions {
			switch f.Kind {
			case nft.HookChain, nft.HookLegacy:
				places[chainID{family: f.Family, table: f.Table, chain: f.Chain}] = i
			case nft.HookNAT:
				places[translation] = i
			case nft.HookConntrack:
				if f.Priority == rules.ConntrackPriority {
					places[conntrack] = i
				}
			}
		}
		o[hookPlace{l.Family, l.Hook}] = places
	}
	return o
}

// has reports whether a chain is listed in each of its families.
func (o hookOrder) has(h rules.Hook, id chainID) bool {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if id.family == rules.Inet || id.family == f {
			if _, ok := o.position(f, h, id); !ok {
				return false
			}
		}
	}
	return true
}

// position returns the position of a chain in the list of a family.
func (o hookOrder) position(f rules.Family, h rules.Hook, id chainID) (int, bool) {
	places := o[hookPlace{f, h}]
	nat := id.nat
	id.nat = false
	i, ok := places[id]
	if !ok && nat {
		i, ok = places[translation]
	}
	return i, ok
}

// sideOfConntrack returns -1 for a chain that is listed before conntrack in each of its families, 1
// for a chain after it, and 0 if the order is unknown.
func (o hookOrder) sideOfConntrack(h rules.Hook, id chainID) int {
	side := 0
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if id.family != rules.Inet && id.family != f {
			continue
		}
		x, okX := o.position(f, h, id)
		y, okY := o.position(f, h, conntrack)
		of := -1
		if x > y {
			of = 1
		}
		if !okX || !okY || side == -of {
			return 0
		}
		side = of
	}
	return side
}
