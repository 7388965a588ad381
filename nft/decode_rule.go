package nft

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// decodeRule decodes a rule. Expressions that the model cannot represent become [rules.Unknown].
func decodeRule(family rules.Family, sets setDecoder, a attributes) rules.Rule {
	d := ruleDecoder{family: family, sets: sets}
	d.decode(a)
	return d.rule
}

// ruleDecoder evaluates the expressions of a rule symbolically: registers hold operands instead of
// values, and comparisons of registers become matches of the model.
//
// The kernel evaluates expressions in order, and an action remains in effect if a later condition
// is false. Therefore conditions become matches of the rule up to its first action (other than
// [rules.Count]), and [rules.Require] actions after it.
type ruleDecoder struct {
	family rules.Family // the family to which the rule is limited, or Inet
	// protocols contains the protocols to which the rule is limited, if isLimited is set.
	protocols []rules.Protocol
	isLimited bool

	sets      setDecoder
	registers [registerCount]*operand
	// pending contains the loads of optional fields on which no condition depends yet. Such a load
	// ends the rule for packets without the field.
	pending []pendingLoad
	loads   int // number of loads of optional fields
	// history is a hash of the expressions so far, with the contents of sets instead of their
	// names. unread reports that it does not cover all data that the expressions depend on.
	history  hash.Hash
	list     attributes // the expressions that are not in history yet
	unhashed int        // number of decoded expressions in list
	unread   bool
	// unknowns contains the next expressions with the name unknownExpression.
	unknowns []rules.Unknown
	draws    int // number of random or stateful conditions
	// inputs contains the inputs on which the expressions so far may depend.
	inputs rules.Inputs

	interval interval
	rule     rules.Rule
	hasActed bool // the rule has an action other than Count
	// isNative reports that the rule has an expression that differs from an equal extension of
	// xtables; see [rules.Rule.XTables].
	isNative bool
	// needsConnection reports that the last action ends the rule for packets without a connection.
	needsConnection bool
	// undo is the state before the last expression, if the decoding of that expression is correct
	// only at the end of the rule.
	undo *cut
	// splits permits a map to split the rule into branches. split reports that the last expression
	// has split the rule, possibly into no branches.
	splits   bool
	split    bool
	branches []rules.Rule
	room     *int // remaining size of branches and tuples; see maxExpansion
}

// A pendingLoad is a load that ends the rule for packets without the field.
type pendingLoad struct {
	number int
	text   string
	data   string
	noData bool
}

// A cut contains the numbers of matches and actions of a rule before an expression was decoded.
type cut struct{ matches, actions int }

// decode decodes the rule.
func (d *ruleDecoder) decode(a attributes) {
	d.list = a.Get(unix.NFTA_RULE_EXPRESSIONS)
	if d.room == nil {
		room := maxExpansion
		d.room = &room
	}
	d.rule.Handle = rules.Handle(a.Number64(unix.NFTA_RULE_HANDLE))
	d.rule.Comment = comment(a.Get(unix.NFTA_RULE_USERDATA))
	wellFormed := d.list.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		name := string(bytes.TrimRight(e.Get(unix.NFTA_EXPR_NAME), "\x00"))
		if !d.interval.continues(name, e.Get(unix.NFTA_EXPR_DATA)) {
			d.closeInterval()
		}
		d.undoLast()
		d.decodeExpression(name, e.Get(unix.NFTA_EXPR_DATA))
	})
	d.closeInterval()
	if !wellFormed {
		d.undoLast()
		d.addUnknown("malformed list of expressions", rules.AnyEffect, rules.NoData)
	}
	d.finish()
}

// undoLast replaces the last expression with an unknown one if its decoding is correct only at the
// end of the rule. It is called before the next expression.
func (d *ruleDecoder) undoLast() {
	switch {
	case d.split:
		d.split, d.branches = false, nil
		d.addUnknown("lookup: not the last expression", rules.AnyEffect, d.identity())
	case d.undo != nil:
		d.rule.Matches, d.rule.Actions = d.rule.Matches[:d.undo.matches],
			d.rule.Actions[:d.undo.actions]
		d.undo = nil
		d.addUnknown("nat: not the last expression", rules.AnyEffect, d.identity())
	}
}

var errUnsupported = errors.New("unknown to the model")

// unknownText returns the name of an expression and the detail of the error.
func unknownText(name string, err error) string {
	detail := strings.TrimSpace(strings.TrimSuffix(err.Error(), errUnsupported.Error()))
	if detail == "" {
		return name
	}
	return name + ": " + detail
}

// addUnknown adds an unknown condition or action.
func (d *ruleDecoder) addUnknown(text string, effect rules.Effect, data string) {
	if effect == rules.AnyEffect {
		d.pending = nil // the expression may also end the rule
	}
	if (effect == rules.ReadsVarying || effect == rules.ReadsHistory) && data != rules.NoData {
		data = fmt.Sprintf("%d %s", d.draws, data)
		d.draws++
	}
	d.add(rules.Unknown{Text: text, Effect: effect, Data: data})
}

// add adds a condition.
func (d *ruleDecoder) add(m rules.Match) {
	d.requireConnection()
	u, isUnknown := m.(rules.Unknown)
	if isUnknown && u.Ignores == 0 {
		u.Ignores = rules.AllInputs &^ d.inputs
		m = u
	}
	switch {
	case isUnknown && !u.Effect.IsCondition():
		d.act(u)
	case d.hasActed:
		d.rule.Actions = append(d.rule.Actions, rules.Require{Match: m})
	default:
		d.rule.Matches = append(d.rule.Matches, m)
	}
}

// act adds an action. It clears the registers with fields of the packet, which the action may
// change.
func (d *ruleDecoder) act(action rules.Action) {
	if action == rules.Action(rules.Count{}) {
		d.rule.Actions = append(d.rule.Actions, action)
		return
	}
	d.requirePending()
	d.requireConnection()
	d.rule.Actions = append(d.rule.Actions, action)
	d.hasActed = true
	for i, op := range d.registers {
		if op != nil && op.field != fieldConstant {
			d.registers[i] = nil
		}
	}
}

// count adds a [rules.Count], unless the last action is a Count. It represents actions without an
// effect on the packet.
func (d *ruleDecoder) count() {
	if n := len(d.rule.Actions); n == 0 || d.rule.Actions[n-1] != rules.Action(rules.Count{}) {
		d.act(rules.Count{})
	}
}

// requirePending adds for each pending load the condition that its field exists.
func (d *ruleDecoder) requirePending() {
	pending := d.pending
	d.pending = nil
	for _, p := range pending {
		data := p.data
		if p.noData {
			data = rules.NoData
		}
		d.addUnknown(p.text+" exists", rules.Reads, data)
	}
}

// use removes the pending loads of the operands, because a condition or an unknown action depends
// on the operands and therefore on the existence of their fields.
func (d *ruleDecoder) use(ops ...operand) {
	if len(d.pending) == 0 {
		return
	}
	d.pending = slices.DeleteFunc(slices.Clone(d.pending), func(p pendingLoad) bool {
		return slices.ContainsFunc(ops, func(op operand) bool {
			return slices.Contains(op.loads, p.number)
		})
	})
}

// hashExpression adds an expression to the hash of the rule, without values that change with
// packets.
func (d *ruleDecoder) hashExpression(name string, a attributes) {
	fmt.Fprintf(d.history, "\x00%s\x00", name)
	switch name {
	case "counter", "last", "log":
		// These have no effect on packets.
	case "connlimit", "quota", "limit":
		// The text of the condition includes the constant values.
	case "match", "target":
		_, _ = d.history.Write(a.Get(unix.NFTA_MATCH_NAME))
	case "lookup":
		for _, attr := range []uint16{
			unix.NFTA_LOOKUP_SREG, unix.NFTA_LOOKUP_DREG, unix.NFTA_LOOKUP_FLAGS,
		} {
			_, _ = d.history.Write(a.Get(attr))
		}
		id := d.sets[a.Text(unix.NFTA_LOOKUP_SET)].identity()
		d.unread = d.unread || id == rules.NoData
		fmt.Fprintf(d.history, "\x00%s\x00", id)
	default:
		_, _ = d.history.Write(a)
	}
}

// identity returns a hash of all expressions so far and of the contents of their sets. Lists of
// expressions with equal identities are equal. It returns [rules.NoData] if a set cannot be read.
func (d *ruleDecoder) identity() string {
	if d.list == nil {
		return rules.NoData
	}
	if d.history == nil { // created on demand: most rules need no identity
		d.history = sha256.New()
	}
	for ; d.unhashed > 0; d.unhashed-- {
		length := int(native.Uint16(d.list))
		e := d.list[unix.NLA_HDRLEN:length]
		d.hashExpression(e.Text(unix.NFTA_EXPR_NAME), e.Get(unix.NFTA_EXPR_DATA))
		d.list = d.list[min(nlmsg.Align(length), len(d.list)):]
	}
	if d.unread {
		return rules.NoData
	}
	return fmt.Sprintf("%x", d.history.Sum(nil))
}

// finish converts the rule to the canonical form of [rules.Compile].
func (d *ruleDecoder) finish() {
	if d.isNative && d.rule.XTables {
		// The model distinguishes only rules. No program writes such a rule.
		d.split, d.branches, d.undo = false, nil, nil
		d.rule.Matches = nil
		d.rule.Actions = []rules.Action{rules.Unknown{
			Text: "expressions with an extension of xtables", Data: rules.NoData,
		}}
		return
	}
	matches := d.rule.Matches
	// An address match implies the family.
	d.rule.Matches = slices.DeleteFunc(slices.Clone(matches), func(m rules.Match) bool {
		f, ok := m.(rules.MatchFamily)
		return ok && impliesFamily(matches, f.Family)
	})
	rules.SortMatches(d.rule.Matches)
}

func (d *ruleDecoder) decodeCounter(a attributes) error {
	d.rule.Hits = decodePackets(a)
	d.act(rules.Count{})
	return nil
}

// constant returns the value of a constant, which is in a nested attribute.
func constant(a attributes, attr uint16) []byte {
	return attributes(a.Get(attr)).Get(unix.NFTA_DATA_VALUE)
}

func (d *ruleDecoder) decodeImmediate(a attributes) error {
	if a.Number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT {
		value := constant(a, unix.NFTA_IMMEDIATE_DATA)
		return d.store(a, unix.NFTA_IMMEDIATE_DREG, operand{
			field: fieldConstant, length: len(value), constant: value,
		})
	}
	v, err := decodeVerdict(attributes(a.Get(unix.NFTA_IMMEDIATE_DATA)).Get(unix.NFTA_DATA_VERDICT))
	switch {
	case err != nil:
		return err
	case v.action != nil:
		d.act(v.action)
	case v.ends:
		d.addUnknown("break", rules.Reads, "")
	default:
		d.count()
	}
	return nil
}

// A verdict is a decoded verdict: an action or, if action is nil, the end of the rule or no effect.
type verdict struct {
	action rules.Action
	ends   bool
}

// decodeVerdict decodes a verdict.
func decodeVerdict(a attributes) (verdict, error) {
	if len(a.Get(unix.NFTA_VERDICT_CODE)) != 4 {
		return verdict{}, fmt.Errorf("no verdict, %w", errUnsupported)
	}
	switch code := int32(a.Number(unix.NFTA_VERDICT_CODE)); code {
	case 0:
		return verdict{action: rules.Drop}, nil
	case 1:
		return verdict{action: rules.Accept}, nil
	case unix.NFT_RETURN:
		return verdict{action: rules.Return}, nil
	case unix.NFT_JUMP, unix.NFT_GOTO:
		return verdict{action: rules.Jump{
			Chain: a.Text(unix.NFTA_VERDICT_CHAIN), Goto: code == unix.NFT_GOTO,
		}}, nil
	case unix.NFT_CONTINUE:
		return verdict{}, nil
	case unix.NFT_BREAK:
		return verdict{ends: true}, nil
	default:
		return verdict{}, fmt.Errorf("verdict %d %w", code, errUnsupported)
	}
}
