package nft

import (
	"github.com/google/nftables/expr"

	"github.com/sluice-mesh/sluice/rules"
)

// The methods in this file encode expressions that only other programs use.

func (e *encoder) one(add func(x *expressions)) {
	e.exprs.reset()
	add(&e.exprs)
	for _, x := range e.exprs.list {
		if err := e.write(x); err != nil {
			panic(err)
		}
	}
}

func (e *encoder) meta(key expr.MetaKey) { e.one(func(x *expressions) { x.meta(key) }) }

func (e *encoder) setMeta(key expr.MetaKey) { e.one(func(x *expressions) { x.setMeta(key) }) }

func (e *encoder) ct(key expr.CtKey) { e.one(func(x *expressions) { x.ct(key) }) }

func (e *encoder) payload(p payload) { e.one(func(x *expressions) { x.payload(p) }) }

func (e *encoder) immediate(value []byte) { e.one(func(x *expressions) { x.immediate(value) }) }

func (e *encoder) cmp(negated bool, value []byte) {
	e.one(func(x *expressions) { x.cmp(negated, value) })
}

func (e *encoder) bitwise(mask, xor []byte) {
	e.one(func(x *expressions) { x.bitwise(mask, xor) })
}

func (e *encoder) family(f rules.Family) { e.one(func(x *expressions) { x.matchFamily(f) }) }

func (e *encoder) lookup(negated bool, set setRef) {
	e.one(func(x *expressions) { x.lookup(negated, set) })
}

func (e *encoder) verdict(kind expr.VerdictKind, chain string) {
	e.one(func(x *expressions) { x.verdict(kind, chain) })
}
