package compat

import (
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A chainID names a base chain of nftables, or without chain the table of iptables-legacy.
type chainID struct {
	family       rules.Family
	table, chain string
	nat          bool
}

// hookOrder has, for each family and hook, the places of what the kernel calls there.
type hookOrder map[hookPlace]map[chainID]int

type hookPlace struct {
	family rules.Family
	hook   rules.Hook
}

// translation stands for the place where the kernel translates, if it does not list what it calls there.
var translation = chainID{nat: true}

// newHookOrder makes an index of the lists.
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
			}
		}
		o[hookPlace{l.Family, l.Hook}] = places
	}
	return o
}

// has tells whether a chain is listed, in each of its families.
func (o hookOrder) has(h rules.Hook, id chainID) bool {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if id.family == rules.Inet || id.family == f {
			if _, ok := o.place(f, h, id); !ok {
				return false
			}
		}
	}
	return true
}

// place is where in the list of a family a chain is.
func (o hookOrder) place(f rules.Family, h rules.Hook, id chainID) (int, bool) {
	places := o[hookPlace{f, h}]
	nat := id.nat
	id.nat = false
	i, ok := places[id]
	if !ok && nat {
		i, ok = places[translation]
	}
	return i, ok
}

// before tells whether a is listed before b in a family that both have.
func (o hookOrder) before(h rules.Hook, a, b chainID) bool {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		x, okX := o.place(f, h, a)
		y, okY := o.place(f, h, b)
		if okX && okY && x < y {
			return true
		}
	}
	return false
}
