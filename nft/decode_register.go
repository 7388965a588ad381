package nft

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// registerCount is the number of 4-byte registers. A 16-byte register consists of four of them
// (linux/netfilter/nf_tables.h).
const registerCount = unix.NFT_REG32_15 - unix.NFT_REG32_00 + 1

// registerIndex returns the index of the first 4-byte register of an attribute, or registerCount if
// the attribute is missing or invalid.
func registerIndex(a attributes, attr uint16) int {
	switch r := a.Number(attr); {
	case unix.NFT_REG_1 <= r && r <= unix.NFT_REG_4:
		return int(r-unix.NFT_REG_1) * 4
	case unix.NFT_REG32_00 <= r && r <= unix.NFT_REG32_15:
		return int(r - unix.NFT_REG32_00)
	}
	return registerCount
}

// load returns the operand in the register of an attribute. If the register is empty, it returns an
// operand with the field fieldNone.
func (d *ruleDecoder) load(a attributes, attr uint16) operand {
	if r := registerIndex(a, attr); r < registerCount && d.registers[r] != nil {
		return *d.registers[r]
	}
	return operand{noData: true, effect: rules.Reads}
}

// operandAt returns the operand whose registers include register r, and the offset of this register
// in the operand, in bytes.
func (d *ruleDecoder) operandAt(r int) (op *operand, offset int) {
	for i := min(r, registerCount-1); i >= 0; i-- {
		if op := d.registers[i]; op != nil {
			if r < i+words(op.length) {
				return op, (r - i) * 4
			}
			return nil, 0
		}
	}
	return nil, 0
}

// constantAt returns length bytes of a constant, starting at the register of an attribute.
func (d *ruleDecoder) constantAt(a attributes, attr uint16, length int) ([]byte, bool) {
	r := registerIndex(a, attr)
	if r >= registerCount {
		return nil, false
	}
	op, offset := d.operandAt(r)
	if op == nil || op.field != fieldConstant || offset+length > len(op.constant) {
		return nil, false
	}
	return op.constant[offset : offset+length], true
}

// store stores an operand, starting at the register of an attribute. It removes operands that
// overlap the registers of the new operand.
func (d *ruleDecoder) store(a attributes, attr uint16, op operand) error {
	r := registerIndex(a, attr)
	if r >= registerCount || op.field == fieldNone {
		return errUnsupported
	}
	d.storeAt(r, op)
	return nil
}

// storeAt is like store, but for the index of the first register.
func (d *ruleDecoder) storeAt(r int, op operand) {
	for i, other := range d.registers {
		if other != nil && i < r+max(words(op.length), 1) && r < i+max(words(other.length), 1) {
			d.registers[i] = nil
		}
	}
	d.registers[r] = &op
}

// storePending is like store, but for an optional field: the load ends the rule for packets without
// the field.
func (d *ruleDecoder) storePending(a attributes, attr uint16, op operand) error {
	d.loadCount++
	op.loads = append(slices.Clip(op.loads), d.loadCount)
	if err := d.store(a, attr, op); err != nil {
		return err
	}
	d.pending = append(d.pending, pendingLoad{
		number: d.loadCount, text: op.String(), data: op.data, noData: op.noData,
	})
	return nil
}

// loadUnknown stores an operand that the model cannot represent.
func (d *ruleDecoder) loadUnknown(name string, kind *expressionKind, a attributes) error {
	op := operand{
		field: fieldUnknown, length: loadLength(name, a), text: loadText(name, kind, a),
		effect: rules.Reads, data: d.indexData(name, a),
	}
	if name == "bitwise" {
		op.part = d.load(a, unix.NFTA_BITWISE_SREG).part.bitwise(a)
	}
	op.noData = name == "byteorder" && keepsBytes(a)
	for _, attr := range kind.sources {
		if attr == 0 || a.Get(attr) == nil {
			continue
		}
		source := d.load(a, attr)
		op.dependOn(source)
		// The expression may read registers after the operand. decodeHash has the same check.
		op.noData = op.noData || name != "hash" && op.length > source.length
		if text, ok := bitwiseText(name, a); ok {
			op.text = source.String() + text
			continue
		}
		op.text += " of " + source.String()
	}
	return d.storePending(a, kind.destination, op)
}

// bitwiseText returns the operator and the constant of a shift of 4 bytes, or the mask and the xor
// value of a bitwise expression, in nft's syntax.
func bitwiseText(name string, a attributes) (string, bool) {
	if name != "bitwise" {
		return "", false
	}
	if mask, xor := constantValue(a, unix.NFTA_BITWISE_MASK),
		constantValue(a, unix.NFTA_BITWISE_XOR); a.Number(nftaBitwiseOp) == bitwiseMaskXor &&
		len(mask) > 0 && len(xor) > 0 {
		text := fmt.Sprintf(" & 0x%x", mask)
		if !isZero(xor) {
			text += fmt.Sprintf(" ^ 0x%x", xor)
		}
		return text, true
	}
	bits, ok := nlmsg.HostNumber(constantValue(a, nftaBitwiseData))
	if !ok || a.Number(unix.NFTA_BITWISE_LEN) != 4 {
		return "", false
	}
	operator, ok := map[uint32]string{
		bitwiseLeftShift: "<<", bitwiseRightShift: ">>",
	}[a.Number(nftaBitwiseOp)]
	return fmt.Sprintf(" %s %d", operator, bits), ok
}

// words returns the number of 4-byte registers that length bytes occupy.
func words(length int) int { return (length + 3) / 4 }

// An operand is the content of a register, for example a field of the packet or a constant.
type operand struct {
	field  field
	length int // in bytes
	// constant is the value of fieldConstant, the level of fieldCgroup, or the kind of a reverse
	// path.
	constant     []byte
	mask         []byte // nil for all bits
	xor          []byte
	networkOrder bool // converted from host to network byte order; see field.hasByteOrder
	hasPorts     bool // for port fields: the protocol has ports
	ipv6         bool // for ICMP fields and keys of caches: the family is IPv6
	// loads contains the numbers of the pending loads that the value depends on.
	loads []int
	// text is the field in nft's syntax.
	text string
	// effect is Reads, or ReadsVarying if the value is random. noData reports that the value
	// depends on data that was not read.
	effect rules.Effect
	noData bool
	// data identifies the properties of the value that text does not include.
	data string
	// part is the part of the network header that the register contains, or nil.
	part *headerPart
	// For fieldNumber: the number is at least offset and less than offset+modulus.
	modulus, offset uint32
	// For fieldMapped: the map and the looked-up operands.
	mapped  *decodedSet
	sources []operand
}

// dependOn records that the value also depends on another operand.
func (o *operand) dependOn(other operand) {
	o.loads = append(slices.Clip(o.loads), other.loads...)
	o.noData = o.noData || other.noData
	o.data += other.data
	if other.effect == rules.ReadsVarying {
		o.effect = rules.ReadsVarying
	}
}

// dependOnAll records that the value depends on the operands, and returns their texts.
func (o *operand) dependOnAll(ops []operand) string {
	texts := make([]string, len(ops))
	for i, op := range ops {
		o.dependOn(op)
		texts[i] = op.String()
	}
	return strings.Join(texts, " . ")
}

// String returns the operand in a syntax like nft's.
func (o operand) String() string {
	text := o.text
	switch {
	case o.field == fieldConstant:
		text = fmt.Sprintf("0x%x", o.constant)
	case text == "":
		text = "register"
	}
	if o.mask != nil {
		text = fmt.Sprintf("%s & 0x%x", text, o.mask)
		if !isZero(o.xor) {
			text = fmt.Sprintf("(%s) ^ 0x%x", text, o.xor)
		}
	}
	return text
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(b byte) bool { return b != 0 }) }

// isAddr reports whether an operand is a complete address.
func (d *ruleDecoder) isAddr(o operand) bool {
	isAddrField := o.field == fieldSource || o.field == fieldDestination
	return isAddrField && o.mask == nil && o.length == int(addrField(d.family, fieldSide(o.field)).length)
}

// indexData returns a text that identifies the namespace if an expression loads the index of an
// interface, and an empty text otherwise. Rules with an index are equal only within one namespace,
// because the same index means different interfaces in different namespaces (except for lo).
func (d *ruleDecoder) indexData(name string, a attributes) string {
	if d.indexScope == (netns.ID{}) || !loadsIndex(name, a) {
		return ""
	}
	return fmt.Sprintf("index in %v", d.indexScope)
}

// loadsIndex reports whether an expression loads the index of an interface.
func loadsIndex(name string, a attributes) bool {
	switch name {
	case "meta":
		key := a.Number(unix.NFTA_META_KEY)
		return a.Get(unix.NFTA_META_DREG) != nil &&
			(key == unix.NFT_META_IIF || key == unix.NFT_META_OIF)
	case "fib":
		return a.Number(unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_OIF &&
			a.Number(unix.NFTA_FIB_FLAGS)&unix.NFTA_FIB_F_PRESENT == 0
	}
	return false
}

// comparesKnownIndex reports whether an expression compares an index with 0, which is no interface,
// or with the index of lo.
func comparesKnownIndex(name string, a attributes) bool {
	index, ok := nlmsg.HostNumber(constantValue(a, unix.NFTA_CMP_DATA))
	return name == "cmp" && ok && (index == 0 || index == netns.LoopbackIndex)
}

// isIndex reports whether the operand is the index of an interface.
func (o *operand) isIndex() bool {
	return o.mask == nil && (o.field == fieldInIndex || o.field == fieldOutIndex ||
		o.field == fieldReversePathIndex)
}
