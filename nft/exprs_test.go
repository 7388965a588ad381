package nft

import (
	"github.com/google/nftables/expr"

	"github.com/sluice-mesh/sluice/rules"
)

// The methods in this file encode single expressions, for rules that only other programs write.

// encode encodes the expressions that add creates.
func (e *encoder) encode(add func(x *expressions)) {
	e.exprs.reset()
	add(&e.exprs)
	for _, x := range e.exprs.list {
		if err := e.marshal(x); err != nil {
			panic(err)
		}
	}
}

func (e *encoder) meta(key expr.MetaKey) { e.encode(func(x *expressions) { x.addMeta(key) }) }

func (e *encoder) setMeta(key expr.MetaKey) { e.encode(func(x *expressions) { x.addSetMeta(key) }) }

func (e *encoder) ct(key expr.CtKey) { e.encode(func(x *expressions) { x.addCT(key) }) }

func (e *encoder) payload(p payload) { e.encode(func(x *expressions) { x.addPayload(p) }) }

func (e *encoder) immediate(value []byte) { e.encode(func(x *expressions) { x.addImmediate(value) }) }

func (e *encoder) cmp(negated bool, value []byte) {
	e.encode(func(x *expressions) { x.addCmp(negated, value) })
}

func (e *encoder) bitwise(mask, xor []byte) {
	e.encode(func(x *expressions) { x.addBitwise(mask, xor) })
}

func (e *encoder) family(f rules.Family) { e.encode(func(x *expressions) { x.addFamily(f) }) }

func (e *encoder) lookup(negated bool, set setRef) {
	e.encode(func(x *expressions) { x.addLookup(negated, set) })
}

func (e *encoder) verdict(kind expr.VerdictKind, chain string) {
	e.encode(func(x *expressions) { x.addVerdict(kind, chain) })
}
