package nft

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeNumgen decodes the load of an incremented or random number.
func (d *ruleDecoder) decodeNumgen(a attributes) error {
	kind, ok := map[uint32]string{0: "inc", 1: "random"}[a.Number(unix.NFTA_NG_TYPE)]
	op := operand{
		field: fieldNumber, length: 4, effect: rules.ReadsVarying,
		modulus: a.Number(unix.NFTA_NG_MODULUS), offset: a.Number(unix.NFTA_NG_OFFSET),
	}
	op.text = fmt.Sprintf("numgen %s mod %d", kind, op.modulus)
	if op.offset != 0 {
		op.text += fmt.Sprintf(" offset %d", op.offset)
	}
	if !ok {
		return errUnsupported
	}
	return d.store(a, unix.NFTA_NG_DREG, op)
}

// decodeHash decodes the load of a hash of registers or of the packet.
func (d *ruleDecoder) decodeHash(a attributes) error {
	op := operand{
		field: fieldNumber, length: 4, effect: rules.Reads,
		modulus: a.Number(unix.NFTA_HASH_MODULUS), offset: a.Number(unix.NFTA_HASH_OFFSET),
	}
	function := "symhash"
	if a.Number(unix.NFTA_HASH_TYPE) == 0 { // NFT_HASH_JENKINS
		ops, ok := d.operands(registerIndex(a, unix.NFTA_HASH_SREG),
			int(a.Number(unix.NFTA_HASH_LEN)))
		texts := op.dependOnAll(ops)
		// Without a seed the kernel uses a random one.
		op.noData = op.noData || !ok || a.Get(unix.NFTA_HASH_SEED) == nil
		op.data += fmt.Sprintf(" of %d bytes", a.Number(unix.NFTA_HASH_LEN))
		function = fmt.Sprintf("jhash %s seed 0x%x", texts,
			a.Number(unix.NFTA_HASH_SEED))
	}
	op.text = fmt.Sprintf("%s mod %d offset %d", function, op.modulus, op.offset)
	return d.store(a, unix.NFTA_HASH_DREG, op)
}

// decodeBitwise decodes the masking of a register: the result is register & mask ^ xor.
func (d *ruleDecoder) decodeBitwise(a attributes) error {
	op := d.load(a, unix.NFTA_BITWISE_SREG)
	if a.Number(nftaBitwiseOp) != bitwiseMaskXor || op.networkOrder || !op.field.isModeled() {
		return errUnsupported
	}
	mask, xor := constantValue(a, unix.NFTA_BITWISE_MASK), constantValue(a, unix.NFTA_BITWISE_XOR)
	if len(mask) != op.length || len(xor) != op.length {
		return errUnsupported
	}
	mask, xor = slices.Clone(mask), slices.Clone(xor)
	if op.mask != nil { // (x & m ^ y) & n ^ z = x & (m & n) ^ (y & n ^ z)
		for i := range mask {
			xor[i] ^= op.xor[i] & mask[i]
			mask[i] &= op.mask[i]
		}
	}
	op.mask, op.xor, op.part = mask, xor, op.part.bitwise(a)
	return d.store(a, unix.NFTA_BITWISE_DREG, op)
}

// decodeByteorder decodes the conversion of a 4-byte number from host to network byte order. The
// kernel converts only complete words, and leaves the rest of the destination unchanged
// (nft_byteorder_eval in net/netfilter/nft_byteorder.c).
func (d *ruleDecoder) decodeByteorder(a attributes) error {
	op := d.load(a, unix.NFTA_BYTEORDER_SREG)
	length, size := a.Number(unix.NFTA_BYTEORDER_LEN), a.Number(unix.NFTA_BYTEORDER_SIZE)
	if length < size {
		return nil // no complete word: nft converts single bytes in this way
	}
	if a.Number(unix.NFTA_BYTEORDER_OP) != unix.NFT_BYTEORDER_HTON || length != 4 || size != 4 ||
		op.mask != nil || op.length != 4 || op.networkOrder || !op.field.hasByteOrder() {
		return errUnsupported
	}
	op.networkOrder, op.part = true, nil
	op.data += " in network byte order"
	return d.store(a, unix.NFTA_BYTEORDER_DREG, op)
}

// keepsBytes reports whether a byteorder expression leaves bytes of its destination unchanged that
// its source does not determine: it has another destination, and does not write complete registers.
func keepsBytes(a attributes) bool {
	length, size := a.Number(unix.NFTA_BYTEORDER_LEN), a.Number(unix.NFTA_BYTEORDER_SIZE)
	return registerIndex(a, unix.NFTA_BYTEORDER_SREG) != registerIndex(a, unix.NFTA_BYTEORDER_DREG) &&
		(length%4 != 0 || size > 0 && length%size != 0)
}

// isNumber reports whether the only operand is a random or calculated number.
func isNumber(ops []operand) bool {
	return len(ops) == 1 && ops[0].field == fieldNumber && ops[0].mask == nil
}

// numberBranches splits the rule at a map whose keys are random or calculated numbers. The model
// has no condition for such a number. Therefore each branch has an unknown condition. There is one
// exception: if the map contains all possible numbers, the last branch has no condition, because it
// applies if no other branch does.
func numberBranches[V comparable](
	b brancher, groups []keyGroup[V], returns func(V) bool, do func(*ruleDecoder, V) error,
) error {
	d, op := b.d, b.ops[0]
	covered := uint64(0)
	var texts []string
	var possible []V
	for _, g := range groups {
		n, text, ok := op.countNumbers(g.keys)
		if !ok {
			return errUnsupported
		}
		if n > 0 {
			covered += n
			texts, possible = append(texts, text), append(possible, g.value)
		}
	}
	for i, v := range possible {
		last := i == len(possible)-1
		if returns(v) && !last {
			return errUnsupported // after the return, a later branch could apply too
		}
		var matches []rules.Match
		if !last || covered < uint64(op.modulus) {
			matches = append(matches, rules.Unknown{
				Text: op.String() + " " + texts[i], Effect: op.effect, Data: d.numberData(op),
			})
		}
		// For the budget, 16 bytes of the text count as one value.
		err := b.addRule(matches, len(texts[i])/16, func(branch *ruleDecoder) error {
			return do(branch, v)
		})
		if err != nil {
			return err
		}
	}
	return b.finish()
}

// numberData returns the [rules.Unknown.Data] of a condition that compares a number.
func (d *ruleDecoder) numberData(op operand) string {
	if op.noData {
		return rules.NoData
	}
	if op.effect != rules.ReadsVarying {
		return op.data
	}
	id := d.precondition(op.data)
	if id == rules.NoData {
		return id
	}
	return fmt.Sprintf("%d %s", d.varyingCount, id)
}

// countNumbers returns the number of possible values of the operand that the keys contain, and a
// text with the keys.
func (o operand) countNumbers(keys []keyInterval) (n uint64, text string, ok bool) {
	ranges, ok := o.hostRanges(keys)
	if !ok || o.modulus == 0 {
		return 0, "", false
	}
	first, last := uint64(o.offset), uint64(o.offset)+uint64(o.modulus)-1
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
		if from, to := max(first, uint64(r.First)), min(last, uint64(r.Last)); from <= to {
			n += to - from + 1
		}
	}
	return n, "{ " + strings.Join(texts, ", ") + " }", true
}
