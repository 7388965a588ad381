package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// register is the register of all encoded expressions: each value is used before the next is
// loaded.
const register = unix.NFT_REG_1

// expressions maps the matches and actions of a rule to nf_tables expressions of google/nftables.
// The encoder writes them to its transaction, an [expectation] compares them with a dump, and
// [AddTo] passes them to the library.
//
// The expressions of each frequent type share an allocation, and so do all keys, because a ruleset
// has hundreds of expressions.
type expressions struct {
	family rules.Family // of the table
	list   []expr.Any
	hits   rules.Hits // of the next counter

	metas      []expr.Meta
	cts        []expr.Ct
	payloads   []expr.Payload
	immediates []expr.Immediate
	cmps       []expr.Cmp
	lookups    []expr.Lookup
	verdicts   []expr.Verdict
	redirects  []expr.Redir
	keys       []byte
}

// MatchExpressions returns the expressions of the matches of a rule in a table of the family inet.
// It returns an error if nf_tables does not support a match, or if a match needs a set.
func MatchExpressions(matches []rules.Match) ([]expr.Any, error) {
	for _, m := range matches {
		if needsSet(m) {
			return nil, fmt.Errorf("the match %s needs a set", m)
		}
	}
	x := expressions{family: rules.Inet}
	err := x.addRule(&rules.Rule{Matches: matches}, nil)
	return x.list, err
}

// reset removes all expressions, and lets the next ones reuse their memory. The removed expressions
// must no longer be used.
func (x *expressions) reset() {
	x.list, x.keys = x.list[:0], x.keys[:0]
	x.metas, x.cts, x.payloads = x.metas[:0], x.cts[:0], x.payloads[:0]
	x.immediates, x.cmps, x.lookups = x.immediates[:0], x.cmps[:0], x.lookups[:0]
	x.verdicts, x.redirects = x.verdicts[:0], x.redirects[:0]
}

// addRule adds the expressions of a rule. sets contains the references to the sets of its matches;
// it is nil if no match needs a set.
func (x *expressions) addRule(r *rules.Rule, sets []setRef) error {
	var errs []error
	x.hits = r.Hits
	matched := rules.Inet // the family that the previous expressions match
	for i, m := range r.Matches {
		if addr, ok := m.(rules.MatchAddr); ok && x.family == rules.Inet &&
			matched != addr.Family() {
			matched = addr.Family()
			x.addFamily(matched)
		}
		var set setRef
		if sets != nil {
			set = sets[i]
		}
		if err := x.addMatch(m, set); err != nil {
			errs = append(errs, err)
		}
	}
	for _, a := range r.Actions {
		if err := x.addAction(a); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// appendTo appends a value to the slice of its type and returns its address.
func appendTo[T any](values *[]T, v T) *T {
	*values = append(*values, v)
	return &(*values)[len(*values)-1]
}

// copyKey copies a key into the memory that all keys share.
func (x *expressions) copyKey(key []byte) []byte {
	start := len(x.keys)
	x.keys = append(x.keys, key...)
	return x.keys[start:len(x.keys):len(x.keys)]
}

// add adds an expression.
func (x *expressions) add(e expr.Any) { x.list = append(x.list, e) }

// addMeta loads a meta key into the register. addSetMeta sets it from the register; addCT and
// addSetCT do the same with a conntrack key.
func (x *expressions) addMeta(key expr.MetaKey) {
	x.add(appendTo(&x.metas, expr.Meta{Key: key, Register: register}))
}

func (x *expressions) addSetMeta(key expr.MetaKey) {
	x.add(appendTo(&x.metas, expr.Meta{Key: key, SourceRegister: true, Register: register}))
}

func (x *expressions) addCT(key expr.CtKey) {
	x.add(appendTo(&x.cts, expr.Ct{Key: key, Register: register}))
}

func (x *expressions) addSetCT(key expr.CtKey) {
	x.add(appendTo(&x.cts, expr.Ct{Key: key, SourceRegister: true, Register: register}))
}

// addPayload loads a field of a header into the register.
func (x *expressions) addPayload(p payload) {
	x.add(appendTo(&x.payloads, expr.Payload{
		DestRegister: register, Base: expr.PayloadBase(p.base), Offset: p.offset, Len: p.length,
	}))
}

// addImmediate loads a constant into the register.
func (x *expressions) addImmediate(value []byte) {
	x.add(appendTo(&x.immediates, expr.Immediate{Register: register, Data: x.copyKey(value)}))
}

// addCmp ends the rule unless the register is equal or, if negated, unequal to the value.
func (x *expressions) addCmp(negated bool, value []byte) {
	x.add(appendTo(&x.cmps, expr.Cmp{
		Op: equality(negated), Register: register, Data: x.copyKey(value),
	}))
}

// addInterval ends the rule unless the register is in the interval or, if negated, outside of it.
func (x *expressions) addInterval(negated bool, first, last []byte) {
	x.add(&expr.Range{
		Op: equality(negated), Register: register, FromData: x.copyKey(first), ToData: x.copyKey(last),
	})
}

// equality returns the operator for equal or, if negated, for different values.
func equality(negated bool) expr.CmpOp {
	if negated {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// addBitwise sets the register to (register & mask) ^ xor.
func (x *expressions) addBitwise(mask, xor []byte) {
	x.add(&expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(mask)),
		Mask: x.copyKey(mask), Xor: x.copyKey(xor),
	})
}

// addByteorder converts a 32-bit number to network byte order, because the kernel compares
// intervals byte by byte.
func (x *expressions) addByteorder() {
	x.add(&expr.Byteorder{
		SourceRegister: register, DestRegister: register, Op: expr.ByteorderHton, Len: 4, Size: 4,
	})
}

// addLookup ends the rule unless the set contains the register or, if negated, does not contain it.
func (x *expressions) addLookup(negated bool, set setRef) {
	x.add(appendTo(&x.lookups, expr.Lookup{
		SourceRegister: register, SetName: set.name, SetID: set.id, Invert: negated,
	}))
}

// addVerdict ends the rule with a verdict. The chain is empty if the verdict names none.
func (x *expressions) addVerdict(kind expr.VerdictKind, chain string) {
	x.add(appendTo(&x.verdicts, expr.Verdict{Kind: kind, Chain: chain}))
}

// addRedirect redirects to the port in the register.
func (x *expressions) addRedirect() {
	x.add(appendTo(&x.redirects, expr.Redir{
		RegisterProtoMin: register, RegisterProtoMax: register,
		Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED,
	}))
}
