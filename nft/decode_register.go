package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// registerCount is the number of 4-byte registers; a 16-byte register is four of them
// (linux/netfilter/nf_tables.h).
const registerCount = unix.NFT_REG32_15 - unix.NFT_REG32_00 + 1

// registerIndex is the index of the first of the 4-byte registers that an attribute names,
// registerCount if it names none.
func registerIndex(a attributes, attr uint16) int {
	switch r := a.Number(attr); {
	case unix.NFT_REG_1 <= r && r <= unix.NFT_REG_4:
		return int(r-unix.NFT_REG_1) * 4
	case unix.NFT_REG32_00 <= r && r <= unix.NFT_REG32_15:
		return int(r - unix.NFT_REG32_00)
	}
	return registerCount
}

// load is what a register that an attribute names holds.
func (d *ruleDecoder) load(a attributes, attr uint16) operand {
	if r := registerIndex(a, attr); r < registerCount && d.registers[r] != nil {
		return *d.registers[r]
	}
	return operand{noData: true, effect: rules.Reads}
}

// holder returns the operand that a register is part of, and how many bytes before the register it
// begins.
func (d *ruleDecoder) holder(r int) (op *operand, begins int) {
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

// constantAt returns so many bytes of a constant, from the register on that an attribute names.
func (d *ruleDecoder) constantAt(a attributes, attr uint16, length int) ([]byte, bool) {
	r := registerIndex(a, attr)
	if r >= registerCount {
		return nil, false
	}
	op, begins := d.holder(r)
	if op == nil || op.field != fieldConstant || begins+length > len(op.constant) {
		return nil, false
	}
	return op.constant[begins : begins+length], true
}

// store fills the registers from the one that an attribute names, and so takes what others held
// that reach into them.
func (d *ruleDecoder) store(a attributes, attr uint16, op operand) error {
	r := registerIndex(a, attr)
	if r >= registerCount || op.field == fieldNone {
		return errUnsupported
	}
	d.storeAt(r, op)
	return nil
}

func (d *ruleDecoder) storeAt(r int, op operand) {
	for i, other := range d.registers {
		if other != nil && i < r+max(words(op.length), 1) && r < i+max(words(other.length), 1) {
			d.registers[i] = nil
		}
	}
	d.registers[r] = &op
}

// storePending is store of what a packet may lack: then the load ends the rule.
func (d *ruleDecoder) storePending(a attributes, attr uint16, op operand) error {
	d.loads++
	op.loads = append(slices.Clip(op.loads), d.loads)
	if err := d.store(a, attr, op); err != nil {
		return err
	}
	d.pending = append(d.pending, pendingLoad{number: d.loads, text: op.String(), data: op.data, noData: op.noData})
	return nil
}

// loadUnknown stores something that the model has no word for.
func (d *ruleDecoder) loadUnknown(name string, kind expressionKind, a attributes) error {
	op := operand{field: fieldUnknown, length: loadLength(name, a), text: loadText(name, kind, a), effect: rules.Reads}
	for _, attr := range kind.sources {
		if attr == 0 || a.Get(attr) == nil {
			continue
		}
		source := d.load(a, attr)
		op.dependOn(source)
		op.text += " of " + source.String()
	}
	return d.storePending(a, kind.destination, op)
}

// words is how many 4-byte registers so many bytes take.
func words(length int) int { return (length + 3) / 4 }

// An operand is what a register holds: a field of the packet, perhaps masked, or a constant.
type operand struct {
	field    field
	length   int    // in bytes
	constant []byte // of fieldConstant
	mask     []byte // nil for all bits
	xor      []byte
	network  bool // a number of the machine, turned into network order
	ofPorts  bool // of fields that may be ports: the packet is one of TCP or UDP
	ipv6     bool // of ICMP: it is ICMPv6
	// loads are the numbers of the loads that it comes from and that a packet may lack.
	loads []int
	// text is the field in nft's words.
	text string
	// effect is Reads, or Draws if the value depends on chance; noData reports that it depends on
	// what was not read.
	effect rules.Effect
	noData bool
	// data is what the text does not say of the value.
	data string
	// Of fieldNumber, a number from offset on: how many there are.
	modulus, offset uint32
	// Of fieldMapped: the map, and what was looked up in it.
	mapped  *decodedSet
	sources []operand
}

// dependOn says that the value also depends on another.
func (o *operand) dependOn(other operand) {
	o.loads = append(slices.Clip(o.loads), other.loads...)
	o.noData = o.noData || other.noData
	o.data += other.data
	if other.effect == rules.Draws {
		o.effect = rules.Draws
	}
}

// String writes the operand in words like nft's.
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

// isAddr reports whether an operand is a whole address.
func (d *ruleDecoder) isAddr(o operand) bool {
	ofAddr := o.field == fieldSource || o.field == fieldDestination
	return ofAddr && o.mask == nil && o.length == int(addrField(d.family, sideOf(o.field)).length)
}
