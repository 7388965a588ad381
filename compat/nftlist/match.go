package nftlist

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// match translates a comparison.
func (c *compiler) match(body json.RawMessage) bool {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if !exactly(body, &m) {
		return false
	}
	kind, left := onlyMember(m.Left)
	if kind == "fib" && isBool(m.Right) {
		f, ok := fibPresenceField(left)
		return ok && c.compare(f, m.Op, m.Right, false)
	}
	if kind == "fib" && string(m.Right) == "1" && bytes.Contains(left, []byte(`"oif"`)) {
		return false // either interface 1 or, from nft -n, the condition that a route exists
	}
	if isPresence(kind, left) {
		f, ok := c.presenceField(kind, left)
		if kind == "tcp option" && isMissing(m.Op, m.Right) && c.transport == nil {
			// nft lists "meta l4proto tcp tcp option maxseg missing" without the first condition.
			c.mayOmit("meta l4proto")
		}
		return ok && c.compare(f, m.Op, m.Right, false)
	}
	fields, ok := c.fields(m.Left)
	switch {
	case !ok:
		return false
	case isSet(m.Right):
		return c.lookup(fields, m.Op, m.Right)
	case len(fields) != 1:
		return false
	}
	if !c.compare(fields[0], m.Op, m.Right, kind == "&") {
		return false
	}
	if m.Op == "==" || m.Op == "in" {
		c.recordProtocol(kind, left, m.Right)
	}
	return true
}

func isBool(e json.RawMessage) bool { return string(e) == "true" || string(e) == "false" }

// isMissing reports whether a comparison of a boolean is the condition that it is false.
func isMissing(op string, right json.RawMessage) bool {
	value, ok := booleanType.scalar(right, false)
	return ok && (value[0] == 0) != (op == "!=")
}

// isSet reports whether the right side of a comparison is a set or the name of a set.
func isSet(right json.RawMessage) bool {
	var name string
	if json.Unmarshal(right, &name) == nil && strings.HasPrefix(name, "@") {
		return true
	}
	kind, _ := onlyMember(right)
	return kind == "set"
}

// lookup adds a lookup in a set.
func (c *compiler) lookup(fields []field, op string, right json.RawMessage) bool {
	if op != "==" && op != "in" && op != "!=" {
		return false
	}
	fields, ok := lookupFields(fields, right)
	if !ok {
		return false
	}
	s, ok := c.sets.get(right, fields, nil, false)
	if !ok {
		return false
	}
	reg, ok := c.load(fields, s.Interval)
	c.add(&expr.Lookup{SourceRegister: reg.number(), SetName: s.Name, Invert: op == "!="})
	return ok
}

// compare adds a comparison with a value. isMasked is set if the field is the result of "&".
func (c *compiler) compare(f field, op string, right json.RawMessage, isMasked bool) bool {
	var list []json.RawMessage
	isList := json.Unmarshal(right, &list) == nil
	switch op {
	case "in", "!":
		if f.isFlags && !isMasked {
			return c.anyFlag(f, op == "!", right)
		}
		return op == "in" && !isList && c.equal(f, expr.CmpOpEq, right)
	case "==":
		// The meaning of a list depends on the version of nft.
		return (isMasked || !isList) && c.equal(f, expr.CmpOpEq, right)
	case "!=":
		return (isMasked || !isList) && c.equal(f, expr.CmpOpNeq, right)
	}
	order, ok := map[string]expr.CmpOp{
		"<": expr.CmpOpLt, "<=": expr.CmpOpLte, ">": expr.CmpOpGt, ">=": expr.CmpOpGte,
	}[op]
	return ok && c.compareOrder(f, order, right)
}

// anyFlag adds the condition that any of the flags, or none of them, is set.
func (c *compiler) anyFlag(f field, none bool, flags json.RawMessage) bool {
	mask, ok := f.flags(flags)
	if !ok {
		return false
	}
	reg, ok := c.load([]field{f}, false)
	zero := make([]byte, f.size)
	c.addBitwise(reg, mask, zero)
	op := expr.CmpOpNeq
	if none {
		op = expr.CmpOpEq
	}
	c.add(&expr.Cmp{Op: op, Register: reg.number(), Data: zero})
	return ok
}

// compareOrder adds a comparison with the operator <, <=, > or >=.
func (c *compiler) compareOrder(f field, op expr.CmpOp, right json.RawMessage) bool {
	data, ok := f.scalar(right, true)
	if !ok || f.kind == interfaceName {
		return false
	}
	reg, ok := c.load([]field{f}, true)
	c.add(&expr.Cmp{Op: op, Register: reg.number(), Data: data})
	return ok
}

// equal adds the condition that the field is equal, or with CmpOpNeq not equal, to a value, or is
// in a range or a prefix.
func (c *compiler) equal(f field, op expr.CmpOp, right json.RawMessage) bool {
	if data, ok := f.flags(right); ok {
		reg, ok := c.load([]field{f}, false)
		c.add(&expr.Cmp{Op: op, Register: reg.number(), Data: data})
		return ok
	}
	if p, ok := f.prefix(right); ok {
		return c.equalPrefix(f, op, p.Masked().Addr().AsSlice(), p.Bits())
	}
	if value, bits, ok := f.highBits(right, false); ok {
		return c.equalPrefix(f, op, value, bits)
	}
	if name, ok := f.wildcard(right); ok {
		return c.equalPrefix(f, op, []byte(name), 8*len(name))
	}
	key, ok := f.interval(right, true)
	if !ok {
		return false
	}
	reg, ok := c.load([]field{f}, true)
	if op == expr.CmpOpNeq {
		c.add(&expr.Range{Op: op, Register: reg.number(), FromData: key[0], ToData: key[1]})
		return ok
	}
	c.add(&expr.Cmp{Op: expr.CmpOpGte, Register: reg.number(), Data: key[0]})
	c.add(&expr.Cmp{Op: expr.CmpOpLte, Register: reg.number(), Data: key[1]})
	return ok
}

// equalPrefix adds a comparison with the first bits of a value. Like nft it loads only the first
// bytes, unless the bits end within a byte or the value is in host byte order.
func (c *compiler) equalPrefix(f field, op expr.CmpOp, value []byte, bits int) bool {
	reg := c.allocate(f.size)
	length := bits / 8
	if bits == 0 || bits%8 != 0 || f.isHostOrder {
		length = f.size
	}
	f.load(c, reg, length)
	if length == f.size && bits != 8*f.size {
		c.addBitwise(reg, f.mask(bits), make([]byte, f.size))
	}
	c.add(&expr.Cmp{Op: op, Register: reg.number(), Data: value[:length]})
	return true
}

// recordProtocol records the protocol to which a condition limits the rule. nft then adds no
// condition before later statements that need the protocol.
func (c *compiler) recordProtocol(kind string, left, right json.RawMessage) {
	var key struct{ Key, Protocol, Field string }
	if json.Unmarshal(left, &key) != nil {
		return
	}
	switch kind + " " + key.Key + key.Protocol + " " + key.Field {
	case "ct protocol ":
		if _, ok := protocolType.scalar(right, false); ok && c.network == "" {
			// nft lists "meta nfproto ipv4 ct protocol tcp" without the first condition.
			c.mayOmit("meta nfproto")
		}
	case "meta nfproto ":
		if value, ok := nfprotoType.scalar(right, false); ok && c.network == "" {
			c.network = map[byte]string{
				unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
			}[value[0]]
		}
	case "meta l4proto ", "payload ip protocol", "payload ip6 nexthdr":
		value, ok := protocolType.scalar(right, false)
		if !ok {
			return
		}
		if c.transport == nil {
			c.transport = &value[0]
		}
		// nft lists "meta nfproto ipv4 meta l4proto icmp" without the first condition.
		switch value[0] {
		case unix.IPPROTO_ICMP:
			c.mayOmitFamily("ip")
		case unix.IPPROTO_ICMPV6:
			c.mayOmitFamily("ip6")
		}
	}
}
