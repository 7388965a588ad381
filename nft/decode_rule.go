package nft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeRule reads a rule. Expressions that the model has no word for become [rules.Unknown]: before the first action a match,
// later an action.
func decodeRule(family rules.Family, sets setDecoder, a attributes) rules.Rule {
	d := ruleDecoder{family: family, sets: sets}
	d.rule.Position = a.number64(unix.NFTA_RULE_HANDLE)
	d.rule.Comment = comment(a.get(unix.NFTA_RULE_USERDATA), udataRuleComment)
	wellFormed := attributes(a.get(unix.NFTA_RULE_EXPRESSIONS)).each(func(_ uint16, value []byte) {
		e := attributes(value)
		name := bytes.TrimRight(e.get(unix.NFTA_EXPR_NAME), "\x00")
		if !d.interval.continues(name, e.get(unix.NFTA_EXPR_DATA)) {
			d.closeInterval()
		}
		if err := d.expression(name, e.get(unix.NFTA_EXPR_DATA)); err != nil {
			d.unknown(fmt.Sprintf("%s: %v", name, err))
			// It may have written to any register.
			d.registers = [registerCount]operand{}
		}
	})
	d.closeInterval()
	if !wellFormed {
		d.unknown("malformed list of expressions")
	}
	d.finish()
	return d.rule
}

// ruleDecoder follows what the expressions of a rule do with registers.
type ruleDecoder struct {
	family    rules.Family // that the rule is known to be limited to, or Inet
	sets      setDecoder
	registers [registerCount]operand
	interval  interval
	rule      rules.Rule
}

// registerCount is how many registers of 4 bytes there are; those of 16 bytes are four of them each (linux/netfilter/nf_tables.h).
const registerCount = unix.NFT_REG32_15 - unix.NFT_REG32_00 + 1

// registerIndex is the index of the first of the 4-byte registers that an attribute names, registerCount if it names none.
func registerIndex(a attributes, attr uint16) int {
	switch r := a.number(attr); {
	case unix.NFT_REG_1 <= r && r <= unix.NFT_REG_4:
		return int(r-unix.NFT_REG_1) * 4
	case unix.NFT_REG32_00 <= r && r <= unix.NFT_REG32_15:
		return int(r - unix.NFT_REG32_00)
	}
	return registerCount
}

// load is what a register that an attribute names holds.
func (d *ruleDecoder) load(a attributes, attr uint16) operand {
	if r := registerIndex(a, attr); r < registerCount {
		return d.registers[r]
	}
	return operand{}
}

// store fills the registers from the one that an attribute names, and so takes what others held that reach into them.
func (d *ruleDecoder) store(a attributes, attr uint16, op operand) error {
	r := registerIndex(a, attr)
	if r >= registerCount || op.field == fieldNone {
		return errUnsupported
	}
	for i := range d.registers {
		if other := d.registers[i].length; other > 0 && i < r+words(op.length) && r < i+words(other) {
			d.registers[i] = operand{}
		}
	}
	d.registers[r] = op
	return nil
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
}

// field is something of a packet that expressions load.
type field uint8

const (
	fieldNone field = iota
	fieldConstant
	fieldIn
	fieldOut
	fieldFamily
	fieldProtocol
	fieldSource
	fieldDestination
	fieldSourcePort
	fieldDestinationPort
	fieldTCPFlags
	fieldUID
	fieldGID
	fieldMark
	fieldConntrackMark
	fieldState
)

// metaField is what a meta expression with the key loads.
func metaField(key uint32) operand {
	switch key {
	case unix.NFT_META_IIFNAME:
		return operand{field: fieldIn, length: interfaceNameLength}
	case unix.NFT_META_OIFNAME:
		return operand{field: fieldOut, length: interfaceNameLength}
	case unix.NFT_META_NFPROTO:
		return operand{field: fieldFamily, length: 1}
	case unix.NFT_META_L4PROTO:
		return operand{field: fieldProtocol, length: 1}
	case unix.NFT_META_SKUID:
		return operand{field: fieldUID, length: 4}
	case unix.NFT_META_SKGID:
		return operand{field: fieldGID, length: 4}
	case unix.NFT_META_MARK:
		return operand{field: fieldMark, length: 4}
	}
	return operand{}
}

// ctField is what a ct expression with the key loads.
func ctField(key uint32) operand {
	switch key {
	case unix.NFT_CT_MARK:
		return operand{field: fieldConntrackMark, length: 4}
	case unix.NFT_CT_STATE:
		return operand{field: fieldState, length: 4}
	}
	return operand{}
}

var errUnsupported = errors.New("not known to the model")

func (d *ruleDecoder) unknown(text string) {
	if len(d.rule.Actions) == 0 {
		d.rule.Matches = append(d.rule.Matches, rules.Unknown{Text: text})
	} else {
		d.rule.Actions = append(d.rule.Actions, rules.Unknown{Text: text})
	}
}

// finish brings the rule into the form that Compile gives it.
func (d *ruleDecoder) finish() {
	named := slices.ContainsFunc(d.rule.Matches, func(m rules.Match) bool {
		_, ok := m.(rules.MatchAddr)
		return ok
	})
	if named {
		// The match of an address says the family by itself.
		d.rule.Matches = slices.DeleteFunc(d.rule.Matches, func(m rules.Match) bool {
			f, ok := m.(rules.MatchFamily)
			return ok && f.Family == d.family
		})
	}
	rules.SortMatches(d.rule.Matches)
}

// expression carries out one expression.
func (d *ruleDecoder) expression(name []byte, a attributes) error {
	switch string(name) {
	case "meta":
		return d.meta(a)
	case "ct":
		return d.ct(a)
	case "payload":
		return d.payload(a)
	case "immediate":
		return d.immediate(a)
	case "bitwise":
		return d.bitwise(a)
	case "byteorder":
		return d.byteorder(a)
	case "cmp":
		return d.compare(a)
	case "range":
		keys := [][2][]byte{{constant(a, unix.NFTA_RANGE_FROM_DATA), constant(a, unix.NFTA_RANGE_TO_DATA)}}
		return d.match(d.load(a, unix.NFTA_RANGE_SREG), a.number(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_NEQ, keys, "")
	case "lookup":
		return d.lookup(a)
	case "counter":
		d.rule.Hits = rules.Hits{Packets: a.number64(unix.NFTA_COUNTER_PACKETS), Bytes: a.number64(unix.NFTA_COUNTER_BYTES)}
		d.act(rules.Count{})
		return nil
	case "redir":
		return d.redirect(a)
	case "tproxy":
		port, ok := numberKey[uint16](d.load(a, nftaTProxyRegPort).constant)
		family := a.number(nftaTProxyFamily)
		anyFamily := family == unix.NFPROTO_UNSPEC || family == uint32(nfproto(d.family))
		if !ok || !anyFamily || a.get(nftaTProxyRegAddr) != nil {
			return errUnsupported
		}
		d.act(rules.TProxy{Port: port})
		return nil
	case "match", "target":
		d.extension(string(name) == "target", a)
		return nil
	}
	return errUnsupported
}

func (d *ruleDecoder) act(action rules.Action) { d.rule.Actions = append(d.rule.Actions, action) }

// constant reads a nested constant.
func constant(a attributes, attr uint16) []byte {
	return attributes(a.get(attr)).get(unix.NFTA_DATA_VALUE)
}

func (d *ruleDecoder) meta(a attributes) error {
	key := a.number(unix.NFTA_META_KEY)
	if a.get(unix.NFTA_META_SREG) == nil {
		return d.store(a, unix.NFTA_META_DREG, metaField(key))
	}
	if key != unix.NFT_META_MARK {
		return errUnsupported
	}
	op := d.load(a, unix.NFTA_META_SREG)
	value, isNumber := hostNumber(op.constant)
	mask, isMasked := hostNumber(op.mask)
	xor, _ := hostNumber(op.xor)
	switch {
	case op.field == fieldConstant && isNumber:
		d.act(rules.SetMark{Value: value, Mask: ^uint32(0)})
	case op.field == fieldConntrackMark && op.mask == nil:
		d.act(rules.RestoreMark{})
	case op.field == fieldMark && isMasked && xor&mask == 0:
		d.act(rules.SetMark{Value: xor, Mask: ^mask})
	default:
		return errUnsupported
	}
	return nil
}

func (d *ruleDecoder) ct(a attributes) error {
	key := a.number(unix.NFTA_CT_KEY)
	if a.get(unix.NFTA_CT_DIRECTION) != nil {
		return errUnsupported
	}
	if a.get(unix.NFTA_CT_SREG) == nil {
		return d.store(a, unix.NFTA_CT_DREG, ctField(key))
	}
	op := d.load(a, unix.NFTA_CT_SREG)
	switch {
	case key == unix.NFT_CT_ZONE && len(op.constant) == 2:
		d.act(rules.SetZone{Zone: native.Uint16(op.constant)})
	case key == unix.NFT_CT_MARK && op.field == fieldMark && op.mask == nil:
		d.act(rules.SaveMark{})
	default:
		return errUnsupported
	}
	return nil
}

func (d *ruleDecoder) payload(a attributes) error {
	if a.get(unix.NFTA_PAYLOAD_SREG) != nil {
		return errUnsupported
	}
	p := payload{a.number(unix.NFTA_PAYLOAD_BASE), a.number(unix.NFTA_PAYLOAD_OFFSET), a.number(unix.NFTA_PAYLOAD_LEN)}
	f := fieldNone
	protocols := d.protocols()
	ports := len(protocols) > 0 && !slices.ContainsFunc(protocols, func(p rules.Protocol) bool { return p != rules.TCP && p != rules.UDP })
	switch {
	case p == sourcePort && ports:
		f = fieldSourcePort
	case p == destinationPort && ports:
		f = fieldDestinationPort
	case p == ipv4Protocol && d.family == rules.IPv4:
		f = fieldProtocol
	case p == tcpFlags && slices.Equal(protocols, []rules.Protocol{rules.TCP}):
		f = fieldTCPFlags
	case p.base == unix.NFT_PAYLOAD_NETWORK_HEADER && d.family != rules.Inet:
		// A prefix of whole bytes may load only those.
		for side, addr := range map[rules.Side]field{rules.Source: fieldSource, rules.Destination: fieldDestination} {
			whole := addrField(d.family, side)
			if p.offset == whole.offset && p.length <= whole.length && p.length > 0 {
				f = addr
			}
		}
	}
	return d.store(a, unix.NFTA_PAYLOAD_DREG, operand{field: f, length: int(p.length)})
}

// protocols are those that the rule is known to be limited to.
func (d *ruleDecoder) protocols() []rules.Protocol {
	for _, m := range d.rule.Matches {
		if p, ok := m.(rules.MatchProtocol); ok && !p.Not {
			return p.Protocols
		}
	}
	return nil
}

func (d *ruleDecoder) immediate(a attributes) error {
	if a.number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT {
		value := constant(a, unix.NFTA_IMMEDIATE_DATA)
		return d.store(a, unix.NFTA_IMMEDIATE_DREG, operand{field: fieldConstant, length: len(value), constant: value})
	}
	v := attributes(attributes(a.get(unix.NFTA_IMMEDIATE_DATA)).get(unix.NFTA_DATA_VERDICT))
	switch code := int32(v.number(unix.NFTA_VERDICT_CODE)); code {
	case 0:
		d.act(rules.Drop)
	case 1:
		d.act(rules.Accept)
	case unix.NFT_RETURN:
		d.act(rules.Return)
	case unix.NFT_JUMP, unix.NFT_GOTO:
		d.act(rules.Jump{Chain: v.text(unix.NFTA_VERDICT_CHAIN), Goto: code == unix.NFT_GOTO})
	default:
		return fmt.Errorf("verdict %d %w", code, errUnsupported)
	}
	return nil
}

func (d *ruleDecoder) bitwise(a attributes) error {
	op := d.load(a, unix.NFTA_BITWISE_SREG)
	if a.number(nftaBitwiseOp) != 0 || op.mask != nil || op.network || op.field == fieldConstant {
		return errUnsupported
	}
	op.mask, op.xor = constant(a, unix.NFTA_BITWISE_MASK), constant(a, unix.NFTA_BITWISE_XOR)
	if len(op.mask) != op.length || len(op.xor) != op.length {
		return errUnsupported
	}
	return d.store(a, unix.NFTA_BITWISE_DREG, op)
}

func (d *ruleDecoder) byteorder(a attributes) error {
	op := d.load(a, unix.NFTA_BYTEORDER_SREG)
	if a.number(unix.NFTA_BYTEORDER_OP) != unix.NFT_BYTEORDER_HTON || a.number(unix.NFTA_BYTEORDER_LEN) != 4 ||
		a.number(unix.NFTA_BYTEORDER_SIZE) != 4 || op.mask != nil || op.length != 4 {
		return errUnsupported
	}
	op.network = true
	return d.store(a, unix.NFTA_BYTEORDER_DREG, op)
}

func (d *ruleDecoder) redirect(a attributes) error {
	port, ok := numberKey[uint16](d.load(a, unix.NFTA_REDIR_REG_PROTO_MIN).constant)
	last, sameLast := numberKey[uint16](d.load(a, unix.NFTA_REDIR_REG_PROTO_MAX).constant)
	if !ok || sameLast && last != port || a.number(unix.NFTA_REDIR_FLAGS)&^natRangeProtoSpecified != 0 {
		return errUnsupported
	}
	d.act(rules.RedirectTo{Port: port})
	return nil
}

func (d *ruleDecoder) lookup(a attributes) error {
	name := a.text(unix.NFTA_LOOKUP_SET)
	s := d.sets[name]
	if s == nil || a.get(unix.NFTA_LOOKUP_DREG) != nil {
		return errUnsupported
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	if s.anonymous {
		name = ""
	}
	return d.match(d.load(a, unix.NFTA_LOOKUP_SREG), a.number(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0, keys, name)
}
