package nft

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// writeStateful encodes an expression with a state that packets change. It reports whether the
// expression has such a state. Attributes are in the order of the kernel's dumps.
func (e *encoder) writeStateful(x expr.Any) bool {
	switch x := x.(type) {
	case *expr.Limit:
		e.writeExpression("limit", func() {
			e.addNumber64(unix.NFTA_LIMIT_RATE, x.Rate)
			e.addNumber64(unix.NFTA_LIMIT_UNIT, uint64(x.Unit))
			e.addNumber(unix.NFTA_LIMIT_BURST, x.Burst)
			e.addNumber(unix.NFTA_LIMIT_TYPE, uint32(x.Type))
			e.addNumber(unix.NFTA_LIMIT_FLAGS, flagIf(x.Over, unix.NFT_LIMIT_F_INV))
		})
	case *expr.Quota:
		e.writeExpression("quota", func() {
			e.addNumber64(unix.NFTA_QUOTA_BYTES, x.Bytes)
			e.addNumber(unix.NFTA_QUOTA_FLAGS, flagIf(x.Over, unix.NFT_QUOTA_F_INV))
		})
	case *expr.Connlimit:
		e.writeAttributes("connlimit", []numberAttribute{
			{nftaConnlimitCount, x.Count}, {nftaConnlimitFlags, x.Flags},
		})
	case *expr.Objref:
		e.writeExpression("objref", func() {
			e.addText(unix.NFTA_OBJREF_IMM_NAME, x.Name)
			e.addNumber(unix.NFTA_OBJREF_IMM_TYPE, uint32(x.Type))
		})
	case *expr.Dynset:
		e.writeExpression("dynset", func() {
			e.addNumber(unix.NFTA_DYNSET_SREG_KEY, x.SrcRegKey)
			e.addNumber(unix.NFTA_DYNSET_OP, x.Operation)
			e.addText(unix.NFTA_DYNSET_SET_NAME, x.SetName)
			e.addNumber64(unix.NFTA_DYNSET_TIMEOUT, uint64(x.Timeout.Milliseconds()))
			e.writeElementExpressions(x.Exprs)
			e.addNumber(unix.NFTA_DYNSET_FLAGS, 0)
		})
	default:
		return false
	}
	return true
}

// writeElementExpressions encodes the expressions of the elements that a rule adds to a set, such
// as limits and counters. A single expression is encoded as an attribute of its own, several
// expressions as a list.
func (e *encoder) writeElementExpressions(list []expr.Any) {
	if len(list) == 0 {
		return
	}
	start := len(e.buf)
	for _, x := range list {
		if counter, ok := x.(*expr.Counter); ok {
			e.writeCounter(counter)
		} else {
			e.writeStateful(x)
		}
	}
	expressions := slices.Clone(e.buf[start:])
	e.buf = e.buf[:start]
	if len(list) == 1 {
		n := e.beginNest(unix.NFTA_DYNSET_EXPR)
		e.buf = append(e.buf, expressions[unix.NLA_HDRLEN:]...) // without the header of a list item
		e.endNest(n)
		return
	}
	n := e.beginNest(nftaDynsetExpressions)
	e.buf = append(e.buf, expressions...)
	e.endNest(n)
}

// flagIf returns the flag if isSet, and 0 otherwise.
func flagIf(isSet bool, flag uint32) uint32 {
	if isSet {
		return flag
	}
	return 0
}
