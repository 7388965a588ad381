package nftlist

import (
	"encoding/json"
	"slices"

	"github.com/google/nftables/expr"

	"github.com/sluice-mesh/sluice/nft"
)

// maxNesting is the maximum depth of nested operations, and the maximum number of computations in a
// statement. It limits the recursion.
const maxNesting = 32

// bitwiseField translates a bitwise operation on a field and a constant. Like nft it combines
// nested operations into one: (value & mask) ^ xor.
func (c *compiler) bitwiseField(operator string, body json.RawMessage) (field, bool) {
	type operation struct {
		operator string
		constant json.RawMessage
	}
	var operations []operation // the outermost first
	var key json.RawMessage
	for {
		var operands []json.RawMessage
		if json.Unmarshal(body, &operands) != nil || len(operands) != 2 ||
			len(operations) == maxNesting {
			return field{}, false
		}
		operations = append(operations, operation{operator, operands[1]})
		key = operands[0]
		inner, innerBody := onlyMember(key)
		if inner != "&" && inner != "|" && inner != "^" {
			break
		}
		operator, body = inner, innerBody
	}
	f, ok := c.field(key)
	if !ok || f.bits != 0 {
		return field{}, false
	}
	mask, xor := make([]byte, f.size), make([]byte, f.size)
	for i := range mask {
		mask[i] = 0xff
	}
	for _, o := range slices.Backward(operations) {
		constant, ok := f.flags(o.constant)
		if !ok {
			return field{}, false
		}
		for j, b := range constant {
			switch o.operator {
			case "&":
				mask[j], xor[j] = mask[j]&b, xor[j]&b
			case "|":
				mask[j], xor[j] = mask[j]&^b, xor[j]|b
			case "^":
				xor[j] ^= b
			}
		}
	}
	return field{f.datatype, func(c *compiler, reg register, length int) {
		f.load(c, reg, length)
		c.addBitwise(reg, mask[:length], xor[:length])
	}}, true
}

// shiftedField translates a shift by a constant. It supports numbers of 4 bytes in host byte order,
// and the shift that turns a part of a byte into a number (see unpacked). It does not support other
// shifts, because nft converts numbers of several bytes to host byte order before it shifts them.
func (c *compiler) shiftedField(operator string, body json.RawMessage) (field, bool) {
	var operands []json.RawMessage
	if json.Unmarshal(body, &operands) != nil || len(operands) != 2 {
		return field{}, false
	}
	var bits int
	fields, ok := c.nestedFields(operands[0])
	if !ok || len(fields) != 1 || !isScalar(operands[1]) || json.Unmarshal(operands[1], &bits) != nil {
		return field{}, false
	}
	f := fields[0]
	switch {
	case bits <= 0 || bits >= 8*f.size:
		return field{}, false
	case f.bits != 0 && operator == ">>" && bits == f.shift:
		return unpacked(f)
	case f.bits != 0 || f.kind != integer || !f.isHostOrder || f.size != 4:
		return field{}, false
	}
	return f.shiftedBy(operator == "<<", bits), true
}

// shiftedBy returns the field after a shift.
func (f field) shiftedBy(left bool, bits int) field {
	return field{f.datatype, func(c *compiler, reg register, length int) {
		f.load(c, reg, length)
		c.added = append(c.added, nft.Shift{
			Register: reg.number(), Length: uint32(length), Left: left, Bits: uint32(bits),
		})
	}}
}

// unpacked returns a field that does not fill its bytes as a number, shifted to the lowest bits, as
// in the elements of named sets and of concatenations. It returns any other field unchanged. It
// returns false if a field of several bytes must be shifted.
func unpacked(f field) (field, bool) {
	if f.bits != 0 && f.shift != 0 {
		if f.size != 1 {
			return field{}, false
		}
		f = f.shiftedBy(false, f.shift)
	}
	f.shift = 0
	return f, true
}

// lookupFields changes the fields in place to the form that they have in the elements of a set, and
// returns them. e contains the name of the set or its elements. If an anonymous set has several
// fields, and one is a number in a part of a byte, such as tcp doff, lookupFields returns false:
// nft lists wrong values of such a set.
func lookupFields(fields []field, e json.RawMessage) ([]field, bool) {
	kind, _ := onlyMember(e)
	if kind == "set" && len(fields) == 1 {
		return fields, true
	}
	for i := range fields {
		if kind == "set" && fields[i].bits != 0 && fields[i].parse == nil {
			return nil, false
		}
		var ok bool
		if fields[i], ok = unpacked(fields[i]); !ok {
			return nil, false
		}
	}
	return fields, true
}

// addBitwise adds the operation register = (register & mask) ^ xor.
func (c *compiler) addBitwise(reg register, mask, xor []byte) {
	c.add(&expr.Bitwise{
		SourceRegister: reg.number(), DestRegister: reg.number(), Len: uint32(len(mask)),
		Mask: mask, Xor: xor,
	})
}

// hashField translates jhash and symhash.
func (c *compiler) hashField(kind string, body json.RawMessage) (field, bool) {
	var object struct {
		Mod, Offset uint32
		Seed        *uint32
		Expr        json.RawMessage
	}
	if !exactly(body, &object) || object.Mod == 0 || object.Seed != nil && *object.Seed == 0 {
		return field{}, false
	}
	hash := expr.Hash{Modulus: object.Mod, Offset: object.Offset, Type: expr.HashTypeSym}
	var sources []field
	if kind == "jhash" {
		var ok bool
		if sources, ok = c.nestedFields(object.Expr); !ok {
			return field{}, false
		}
		hash.Type = expr.HashTypeJenkins
		if object.Seed != nil {
			hash.Seed = *object.Seed
		}
	}
	return field{hostIntType, func(c *compiler, reg register, _ int) {
		hash := hash
		hash.DestRegister = reg.number()
		if sources != nil {
			from, ok := c.load(sources, false)
			c.lacksRegisters = c.lacksRegisters || !ok
			hash.SourceRegister, hash.Length = from.number(), uint32(sizeOf(sources))
		}
		c.add(&hash)
	}}, true
}

// nestedFields translates the operand of a computation, which may itself be a computation.
func (c *compiler) nestedFields(e json.RawMessage) ([]field, bool) {
	if c.computations++; c.computations > maxNesting {
		return nil, false
	}
	return c.fields(e)
}

// mapField translates a lookup of a key in a map. values are the types of the value, which is a
// concatenation if there are several.
func (c *compiler) mapField(body json.RawMessage, values []datatype) (field, bool) {
	keys, m, ok := c.keysAndMap(body, values)
	if !ok {
		return field{}, false
	}
	t := values[0]
	t.size = m.DataLength
	return field{t, func(c *compiler, reg register, _ int) {
		// The value replaces the key in the same registers.
		c.usedRegisters = max(c.usedRegisters,
			int(reg)+registersFor(max(sizeOf(keys), m.DataLength)))
		c.lacksRegisters = c.lacksRegisters || c.usedRegisters > maxFields
		c.loadAt(reg, keys, m.Interval)
		c.add(&expr.Lookup{
			SourceRegister: reg.number(), IsDestRegSet: true, DestRegister: reg.number(),
			SetName: m.Name,
		})
	}}, true
}

// keysAndMap translates the key of a lookup in a map, and returns the map. values are the types of
// the map's value, and empty for a verdict map.
func (c *compiler) keysAndMap(
	body json.RawMessage, values []datatype,
) (keys []field, m *nft.Set, ok bool) {
	var object struct{ Key, Data json.RawMessage }
	if !exactly(body, &object) {
		return nil, nil, false
	}
	if keys, ok = c.nestedFields(object.Key); ok {
		keys, ok = lookupFields(keys, object.Data)
	}
	if !ok {
		return nil, nil, false
	}
	m, ok = c.sets.get(object.Data, keys, values, true)
	return keys, m, ok
}

// verdictMap translates vmap.
func (c *compiler) verdictMap(body json.RawMessage) bool {
	keys, m, ok := c.keysAndMap(body, nil)
	if !ok {
		return false
	}
	reg, ok := c.load(keys, m.Interval)
	c.add(&expr.Lookup{SourceRegister: reg.number(), IsDestRegSet: true, SetName: m.Name})
	return ok
}

// mangle translates a statement that sets a property of the packet or the connection.
func (c *compiler) mangle(body json.RawMessage) bool {
	var object struct{ Key, Value json.RawMessage }
	if !exactly(body, &object) {
		return false
	}
	kind, key := onlyMember(object.Key)
	var target field
	var ok bool
	switch kind {
	case "meta":
		target, ok = metaField(key)
	case "ct":
		target, ok = c.ctField(key)
	case "payload":
		return c.writeHeader(key, object.Value)
	case "tcp option":
		return c.writeOption(key, object.Value)
	}
	if !ok {
		return false
	}
	value, ok := c.value(object.Value, target.datatype)
	if !ok {
		return false
	}
	reg := c.allocate(target.size)
	value.load(c, reg, target.size)
	// Add the expression that would load the target, and make it store to the target instead.
	storeIndex := len(c.added)
	target.load(c, reg, target.size)
	switch e := c.added[storeIndex].(type) {
	case *expr.Meta:
		e.SourceRegister = true
	case *expr.Ct:
		e.SourceRegister = true
		if e.Key == expr.CtKeyZONE && e.OptDirection {
			return false
		}
	}
	return true
}

// value translates a constant of a type, or an expression with a value of the type.
func (c *compiler) value(e json.RawMessage, t datatype) (field, bool) {
	if data, ok := t.flags(e); ok {
		return field{t, func(c *compiler, reg register, _ int) {
			c.add(&expr.Immediate{Register: reg.number(), Data: data})
		}}, true
	}
	if kind, body := onlyMember(e); kind == "map" {
		return c.mapField(body, []datatype{t})
	}
	f, ok := c.field(e)
	return f, ok && f.size == t.size && f.isHostOrder == t.isHostOrder
}
