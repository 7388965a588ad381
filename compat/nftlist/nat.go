package nftlist

import (
	"encoding/json"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// flagNames contains the names of flags. In JSON it is a name or a list of names.
type flagNames []string

// UnmarshalJSON decodes a name or a list of names.
func (f *flagNames) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil {
		*f = flagNames{word}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(f))
}

func (f flagNames) has(name string) bool { return slices.Contains(f, name) }

// areAmong reports whether all flags are among the names.
func (f flagNames) areAmong(names ...string) bool {
	return !slices.ContainsFunc(f, func(name string) bool { return !slices.Contains(names, name) })
}

// registers contains the registers of the first and the last value of a range, or of a single value
// twice. They are 0 if there is no value.
type registers struct{ first, last uint32 }

// A translationObject is the body of dnat, snat, masquerade or redirect.
type translationObject struct {
	Family     string `json:"family"`
	Addr, Port json.RawMessage
	Flags      flagNames `json:"flags"`
	TypeFlags  flagNames `json:"type_flags"`
}

// translation translates dnat, snat, masquerade and redirect.
func (c *compiler) translation(kind string, body json.RawMessage) bool {
	var to translationObject
	if !isNull(body) && !exactly(body, &to) ||
		!to.Flags.areAmong("random", "fully-random", "persistent", "netmap") ||
		!to.TypeFlags.areAmong("prefix", "interval", "concat") {
		return false
	}
	if kind == "dnat" || kind == "snat" {
		return c.translateNAT(kind, to)
	}
	if to.Addr != nil || to.Family != "" || to.Flags.has("netmap") {
		return false
	}
	ports, ok := c.loadPorts(to.Port)
	if !ok {
		return false
	}
	if kind == "masquerade" {
		c.add(&expr.Masq{
			Random: to.Flags.has("random"), FullyRandom: to.Flags.has("fully-random"),
			Persistent: to.Flags.has("persistent"), ToPorts: ports.first != 0,
			RegProtoMin: ports.first, RegProtoMax: ports.last,
		})
		return true
	}
	c.add(&expr.Redir{
		RegisterProtoMin: ports.first, RegisterProtoMax: ports.last,
		Flags: redirectFlags(to.Flags, ports),
	})
	return true
}

// redirectFlags returns the flags of redirect (linux/netfilter/nf_nat.h).
func redirectFlags(names flagNames, ports registers) uint32 {
	flags := uint32(0)
	for flag, isSet := range map[uint32]bool{
		expr.NF_NAT_RANGE_PROTO_SPECIFIED:    ports.first != 0,
		expr.NF_NAT_RANGE_PROTO_RANDOM:       names.has("random"),
		expr.NF_NAT_RANGE_PROTO_RANDOM_FULLY: names.has("fully-random"),
		expr.NF_NAT_RANGE_PERSISTENT:         names.has("persistent"),
	} {
		if isSet {
			flags |= flag
		}
	}
	return flags
}

// translateNAT translates dnat and snat.
func (c *compiler) translateNAT(kind string, to translationObject) bool {
	family := to.Family
	if family == "" {
		family = c.network
	}
	number, known := map[string]uint32{
		"": unix.NFPROTO_INET, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6,
	}[family]
	if !known || c.network != "" && family != c.network || to.Addr == nil && to.Port == nil {
		return false
	}
	n := expr.NAT{
		Type: expr.NATTypeDestNAT, Family: number, Random: to.Flags.has("random"),
		FullyRandom: to.Flags.has("fully-random"), Persistent: to.Flags.has("persistent"),
		Prefix: to.Flags.has("netmap"),
	}
	if kind == "snat" {
		n.Type = expr.NATTypeSourceNAT
	}
	addrs, ports, ok := c.loadAddresses(to.Addr, family)
	if ok && ports == (registers{}) {
		ports, ok = c.loadPorts(to.Port)
	} else if to.Port != nil {
		return false // the values of a map contain the port
	}
	if !ok {
		return false
	}
	n.RegAddrMin, n.RegAddrMax = addrs.first, addrs.last
	n.RegProtoMin, n.RegProtoMax = ports.first, ports.last
	c.add(&n)
	return true
}

// loadAddresses loads the addresses of a translation: none, an address, a range, or a value of a
// map. The value of a map may also contain a port.
func (c *compiler) loadAddresses(
	e json.RawMessage, family string,
) (addrs, ports registers, ok bool) {
	if e == nil {
		return addrs, ports, true
	}
	t, ok := map[string]datatype{"ip": ipv4Type, "ip6": ipv6Type}[family]
	if !ok {
		return addrs, ports, false
	}
	kind, body := onlyMember(e)
	if kind != "map" {
		addrs, ok = c.loadConstants(e, t)
		return addrs, ports, ok
	}
	types := []datatype{t}
	switch c.formOfData(body) {
	case "concat":
		types = append(types, portType)
	case "range":
		types[0].isPair = true
	case "scalar":
	default:
		return addrs, ports, false
	}
	f, ok := c.mapField(body, types)
	if !ok {
		return addrs, ports, false
	}
	reg := c.allocate(f.size)
	f.load(c, reg, f.size)
	next := (reg + register(words(t.size))).number()
	addrs = registers{reg.number(), reg.number()}
	switch {
	case types[0].isPair:
		addrs.last = next
	case len(types) > 1:
		ports = registers{next, next}
	}
	return addrs, ports, true
}

// formOfData returns the form of the values of a map: "concat", "scalar", or "range" if a value is
// a range or a prefix. For a map that does not exist it returns an empty string, and for an empty
// map, whose values do not matter, "scalar".
func (c *compiler) formOfData(body json.RawMessage) string {
	var object struct{ Data json.RawMessage }
	if json.Unmarshal(body, &object) != nil {
		return ""
	}
	var name string
	if json.Unmarshal(object.Data, &name) == nil && len(name) > 1 {
		form, ok := c.sets.forms[name]
		if !ok {
			m, exists := c.sets.in.sets[objectID{c.sets.id.family, c.sets.id.table, name[1:]}]
			if form = formOf(m.Elements); exists && len(m.Elements) == 0 {
				form = "scalar"
			}
			c.sets.forms[name] = form
		}
		return form
	}
	return formOf(listIn(object.Data, "set"))
}

// formOf returns the form of the values of a map's elements; see formOfData.
func formOf(elements []json.RawMessage) string {
	form := ""
	for _, e := range elements {
		element, _ := decodeElement(e, true)
		switch kind, _ := onlyMember(element.data); {
		case kind == "range" || kind == "prefix":
			return "range"
		case kind == "concat":
			return kind
		case isScalar(element.data):
			form = "scalar"
		}
	}
	return form
}

// loadConstants loads a constant, or the first and the last value of a range, to registers.
func (c *compiler) loadConstants(e json.RawMessage, t datatype) (registers, bool) {
	key, ok := t.interval(e, false)
	if !ok {
		return registers{}, false
	}
	first := c.allocate(t.size)
	c.add(&expr.Immediate{Register: first.number(), Data: key[0]})
	if isScalar(e) {
		return registers{first.number(), first.number()}, true
	}
	last := c.allocate(t.size)
	c.add(&expr.Immediate{Register: last.number(), Data: key[1]})
	return registers{first.number(), last.number()}, true
}

// loadPorts loads the ports of a translation: none, a port, a range, or a value of a map.
func (c *compiler) loadPorts(e json.RawMessage) (registers, bool) {
	if e == nil {
		return registers{}, true
	}
	kind, body := onlyMember(e)
	if kind != "map" {
		return c.loadConstants(e, portType)
	}
	f, ok := c.mapField(body, []datatype{portType})
	if !ok {
		return registers{}, false
	}
	reg := c.allocate(f.size)
	f.load(c, reg, f.size)
	return registers{reg.number(), reg.number()}, true
}
