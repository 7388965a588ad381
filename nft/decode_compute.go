package nft

import (
	"fmt"
	"slices"

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

// decodeByteorder decodes the conversion of a 4-byte number from host to network byte order.
func (d *ruleDecoder) decodeByteorder(a attributes) error {
	op := d.load(a, unix.NFTA_BYTEORDER_SREG)
	if a.Number(unix.NFTA_BYTEORDER_LEN) < a.Number(unix.NFTA_BYTEORDER_SIZE) &&
		a.Number(unix.NFTA_BYTEORDER_SREG) == a.Number(unix.NFTA_BYTEORDER_DREG) {
		// nft converts single bytes, which has no effect: the kernel converts only complete words
		// (nft_byteorder_eval in net/netfilter/nft_byteorder.c).
		return d.store(a, unix.NFTA_BYTEORDER_DREG, op)
	}
	if a.Number(unix.NFTA_BYTEORDER_OP) != unix.NFT_BYTEORDER_HTON ||
		a.Number(unix.NFTA_BYTEORDER_LEN) != 4 ||
		a.Number(unix.NFTA_BYTEORDER_SIZE) != 4 ||
		op.mask != nil || op.length != 4 || op.networkOrder || !op.field.hasByteOrder() {
		return errUnsupported
	}
	op.networkOrder, op.part = true, nil
	op.data += " in network byte order"
	return d.store(a, unix.NFTA_BYTEORDER_DREG, op)
}
