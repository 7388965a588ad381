package nftlist

import (
	"encoding/json"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
)

// A field is a value that expressions load: a property of the packet, or a result of a computation.
type field struct {
	datatype
	// load adds the expressions that load the first length bytes to a register. Only fields of
	// headers and options, and operations on them, use length; other fields are always loaded
	// completely.
	load func(c *compiler, reg register, length int)
}

// newField returns the field that a single expression loads, and true.
func newField(t datatype, load func(reg uint32, length int) expr.Any) (field, bool) {
	return field{t, func(c *compiler, reg register, length int) {
		c.add(load(reg.number(), length))
	}}, true
}

// fields translates an expression to the fields of a concatenation, or to a single field.
func (c *compiler) fields(e json.RawMessage) ([]field, bool) {
	operands := listIn(e, "concat")
	if len(operands) == 0 {
		f, ok := c.field(e)
		return []field{f}, ok
	}
	if len(operands) > maxFields {
		return nil, false
	}
	fields := make([]field, len(operands))
	for i, operand := range operands {
		var ok bool
		if fields[i], ok = c.field(operand); !ok {
			return nil, false
		}
	}
	return fields, true
}

// maxFields is the maximum number of fields of a concatenation: the number of registers of 4 bytes
// (NFT_REG32_COUNT).
const maxFields = 16

// field translates an expression with a single value.
func (c *compiler) field(e json.RawMessage) (field, bool) {
	kind, body := onlyMember(e)
	switch kind {
	case "meta":
		return metaField(body)
	case "ct":
		return c.ctField(body)
	case "payload":
		return c.payloadField(body)
	case "fib":
		return fibField(body)
	case "socket":
		return socketField(body)
	case "rt":
		return routeField(body)
	case "tcp option":
		c.needOption()
		return optionField(body)
	case "numgen":
		return numgenField(body)
	case "jhash", "symhash":
		return c.hashField(kind, body)
	case "&", "|", "^":
		return c.bitwiseField(kind, body)
	case "<<", ">>":
		return c.shiftedField(kind, body)
	}
	return field{}, false
}

// onlyMember returns the key and the value of an object with exactly one key. For other JSON it
// returns an empty key.
func onlyMember(e json.RawMessage) (kind string, body json.RawMessage) {
	var object map[string]json.RawMessage
	if json.Unmarshal(e, &object) != nil || len(object) != 1 {
		return "", nil
	}
	for kind, body = range object {
		return kind, body
	}
	return "", nil
}

// listIn returns the list in an object whose only key is the kind, or nil.
func listIn(e json.RawMessage, kind string) []json.RawMessage {
	var list []json.RawMessage
	if found, body := onlyMember(e); found != kind || json.Unmarshal(body, &list) != nil {
		return nil
	}
	return list
}

// metaTypes contains the types of the keys of meta.
var metaTypes = table[datatype]{
	{"iifname", nameType},
	{"oifname", nameType},
	{"iif", indexType},
	{"oif", indexType},
	{"iiftype", deviceType},
	{"oiftype", deviceType},
	{"iifkind", textType},
	{"oifkind", textType},
	{"iifgroup", hostIntType},
	{"oifgroup", hostIntType},
	{"nfproto", nfprotoType},
	{"l4proto", l4protoType},
	{"protocol", etherType},
	{"skuid", hostIntType},
	{"skgid", hostIntType},
	{"cgroup", hostIntType},
	{"cpu", hostIntType},
	{"mark", markType},
	{"priority", tcType},
	{"rtclassid", realmType},
	{"length", hostIntType},
	{"pkttype", packetType},
	{"nftrace", byteType},
	{"random", randomType},
	{"day", weekdayType},
}

// metaField translates a property of the packet (meta).
func metaField(body json.RawMessage) (field, bool) {
	var object struct{ Key string }
	if !exactly(body, &object) {
		return field{}, false
	}
	t, known := metaTypes.find(object.Key)
	key, hasKey := nft.MetaKey(object.Key)
	if !known || !hasKey {
		return field{}, false
	}
	return newField(t, func(reg uint32, _ int) expr.Any {
		return &expr.Meta{Key: expr.MetaKey(key), Register: reg}
	})
}

// ctTypes contains the types of the keys of ct.
var ctTypes = table[datatype]{
	{"state", stateType},
	{"status", statusType},
	{"direction", directionType},
	{"mark", markType},
	{"zone", zoneType},
	{"id", idType},
	{"label", labelType},
	{"helper", textType},
	{"event", eventType},
	{"l3proto", nfprotoType},
	{"protocol", protocolType},
	{"ip saddr", ipv4Type},
	{"ip daddr", ipv4Type},
	{"ip6 saddr", ipv6Type},
	{"ip6 daddr", ipv6Type},
	{"proto-src", portType},
	{"proto-dst", portType},
	{"bytes", countType},
	{"packets", countType},
	{"avgpkt", countType},
}

// ctField translates a property of the connection (ct).
func (c *compiler) ctField(body json.RawMessage) (field, bool) {
	var object struct{ Key, Dir string }
	if !exactly(body, &object) {
		return field{}, false
	}
	t, known := ctTypes.find(object.Key)
	key, hasKey := nft.CTKey(object.Key)
	direction := map[string]uint32{"original": 0, "reply": 1}[object.Dir]
	isDirected := strings.Contains(object.Key, "addr") || strings.HasPrefix(object.Key, "proto-") ||
		object.Dir != "" && mayHaveDirection(object.Key)
	if !known || !hasKey || isDirected != (object.Dir != "") ||
		object.Dir != "" && object.Dir != "original" && object.Dir != "reply" {
		return field{}, false
	}
	return newField(t, func(reg uint32, _ int) expr.Any {
		return &expr.Ct{
			Key: expr.CtKey(key), Register: reg, OptDirection: isDirected, Direction: direction,
		}
	})
}

// mayHaveDirection reports whether the key of ct exists with a direction and without one.
func mayHaveDirection(key string) bool {
	switch key {
	case "zone", "bytes", "packets", "avgpkt":
		return true
	}
	return false
}

// fibField translates the result of a lookup in the routing tables (fib).
func fibField(body json.RawMessage) (field, bool) {
	fib, result, ok := decodeFib(body)
	t, known := map[string]datatype{
		"oif": indexType, "oifname": nameType, "type": addrTypeType,
	}[result]
	if !ok || !known {
		return field{}, false
	}
	return newField(t, fib)
}

// fibPresenceField translates the condition that a lookup in the routing tables has a result.
func fibPresenceField(body json.RawMessage) (field, bool) {
	fib, _, ok := decodeFib(body)
	if !ok {
		return field{}, false
	}
	return newField(booleanType, func(reg uint32, length int) expr.Any {
		loaded := fib(reg, length).(*expr.Fib)
		loaded.FlagPRESENT = true
		return loaded
	})
}

// decodeFib decodes a lookup in the routing tables.
func decodeFib(
	body json.RawMessage,
) (load func(reg uint32, length int) expr.Any, result string, ok bool) {
	var object struct {
		Result string
		Flags  flagNames
	}
	if !exactly(body, &object) || !object.Flags.areAmong("saddr", "daddr", "mark", "iif", "oif") {
		return nil, "", false
	}
	fib := expr.Fib{
		ResultOIF: object.Result == "oif", ResultOIFNAME: object.Result == "oifname",
		ResultADDRTYPE: object.Result == "type",
		FlagSADDR:      object.Flags.has("saddr"), FlagDADDR: object.Flags.has("daddr"),
		FlagMARK: object.Flags.has("mark"), FlagIIF: object.Flags.has("iif"),
		FlagOIF: object.Flags.has("oif"),
	}
	return func(reg uint32, _ int) expr.Any {
		loaded := fib
		loaded.Register = reg
		return &loaded
	}, object.Result, true
}

// socketField translates a property of the socket of the packet (socket).
func socketField(body json.RawMessage) (field, bool) {
	var object struct{ Key string }
	if !exactly(body, &object) {
		return field{}, false
	}
	t := byteType
	key := expr.SocketKeyTransparent
	switch object.Key {
	case "transparent":
	case "wildcard":
		key = expr.SocketKeyWildcard
	case "mark":
		t, key = markType, expr.SocketKeyMark
	default:
		return field{}, false
	}
	return newField(t, func(reg uint32, _ int) expr.Any {
		return &expr.Socket{Key: key, Register: reg}
	})
}

// numgenField translates a generated number (numgen).
func numgenField(body json.RawMessage) (field, bool) {
	var object struct {
		Mode        string
		Mod, Offset uint32
	}
	kinds := map[string]uint32{"inc": unix.NFT_NG_INCREMENTAL, "random": unix.NFT_NG_RANDOM}
	if !exactly(body, &object) || object.Mod == 0 {
		return field{}, false
	}
	kind, ok := kinds[object.Mode]
	if !ok {
		return field{}, false
	}
	return newField(hostIntType, func(reg uint32, _ int) expr.Any {
		return &expr.Numgen{Register: reg, Modulus: object.Mod, Type: kind, Offset: object.Offset}
	})
}
