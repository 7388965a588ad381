package nft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeRule reads a rule. Expressions that the model has no word for become [rules.Unknown]: before the first action a match,
// later an action.
func decodeRule(family rules.Family, sets setDecoder, a attributes) rules.Rule {
	d := ruleDecoder{family: family, sets: sets}
	d.decode(a)
	return d.rule
}

// ruleDecoder follows what the expressions of a rule do with registers.
type ruleDecoder struct {
	family    rules.Family // that the rule is known to be limited to, or Inet
	sets      setDecoder
	registers [registerCount]operand
	interval  interval
	rule      rules.Rule
	// splits tells that a verdict map may become several rules; then these are the branches of the map that was read last.
	splits   bool
	branches []rules.Rule
}

// decode reads the whole rule.
func (d *ruleDecoder) decode(a attributes) {
	d.rule.Position = a.number64(unix.NFTA_RULE_HANDLE)
	d.rule.Comment = comment(a.get(unix.NFTA_RULE_USERDATA))
	wellFormed := attributes(a.get(unix.NFTA_RULE_EXPRESSIONS)).each(func(_ uint16, value []byte) {
		e := attributes(value)
		name := bytes.TrimRight(e.get(unix.NFTA_EXPR_NAME), "\x00")
		if !d.interval.continues(name, e.get(unix.NFTA_EXPR_DATA)) {
			d.closeInterval()
		}
		if d.branches != nil {
			d.unknown("lookup: not the last expression")
			d.branches = nil
		}
		if err := d.expression(name, e.get(unix.NFTA_EXPR_DATA)); err != nil {
			d.unknown(unknownText(string(name), err))
			// It may have written to any register.
			d.registers = [registerCount]operand{}
		}
	})
	d.closeInterval()
	if !wellFormed {
		d.unknown("malformed list of expressions")
		d.branches = nil
	}
	d.finish()
}

var errUnsupported = errors.New("not known to the model")

// unknownText names an expression, and what of it the model does not know if the error says more.
func unknownText(name string, err error) string {
	more := strings.TrimSpace(strings.TrimSuffix(err.Error(), errUnsupported.Error()))
	if more == "" {
		return name
	}
	return name + ": " + more
}

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
		return d.tproxy(a)
	case "nat":
		return d.nat(a)
	case "log":
		d.count()
		return nil
	case "match", "target":
		return d.extension(string(name) == "target", a)
	}
	return errUnsupported
}

// count adds what changes nothing about the packet, unless something did already.
func (d *ruleDecoder) count() {
	if n := len(d.rule.Actions); n == 0 || d.rule.Actions[n-1] != rules.Action(rules.Count{}) {
		d.act(rules.Count{})
	}
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
	action, err := decodeVerdict(attributes(a.get(unix.NFTA_IMMEDIATE_DATA)).get(unix.NFTA_DATA_VERDICT))
	if err != nil {
		return err
	}
	d.act(action)
	return nil
}

// decodeVerdict reads what ends a rule.
func decodeVerdict(a attributes) (rules.Action, error) {
	switch code := int32(a.number(unix.NFTA_VERDICT_CODE)); code {
	case 0:
		return rules.Drop, nil
	case 1:
		return rules.Accept, nil
	case unix.NFT_RETURN:
		return rules.Return, nil
	case unix.NFT_JUMP, unix.NFT_GOTO:
		return rules.Jump{Chain: a.text(unix.NFTA_VERDICT_CHAIN), Goto: code == unix.NFT_GOTO}, nil
	default:
		return nil, fmt.Errorf("verdict %d %w", code, errUnsupported)
	}
}

func (d *ruleDecoder) lookup(a attributes) error {
	name := a.text(unix.NFTA_LOOKUP_SET)
	s := d.sets[name]
	if s == nil {
		return errUnsupported
	}
	if a.get(unix.NFTA_LOOKUP_DREG) != nil {
		return d.verdictMap(a, s)
	}
	if s.anonymous {
		name = ""
	}
	op, negated := d.load(a, unix.NFTA_LOOKUP_SREG), a.number(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0
	if d.isAddr(op) {
		if ranges := s.addrRanges(); len(ranges) > 0 && ranges[0].From().BitLen() == 8*op.length {
			return d.add(rules.MatchAddr{Side: sideOf(op.field), Not: negated, Ranges: ranges, Set: name})
		}
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	return d.match(op, negated, keys, name)
}
