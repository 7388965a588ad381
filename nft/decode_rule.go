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

// decodeRule reads a rule. Expressions that the model has no word for become [rules.Unknown].
func decodeRule(family rules.Family, sets setDecoder, a attributes) rules.Rule {
	d := ruleDecoder{family: family, sets: sets}
	d.decode(a)
	return d.rule
}

// ruleDecoder carries out the expressions of a rule on the registers, and collects what the rule
// asks for and does.
//
// The kernel evaluates expressions in order, and what one has done stays done when a later
// condition is not fulfilled. Conditions become matches of the rule up to its first action (other
// than [rules.Count]), and [rules.Require] behind it.
type ruleDecoder struct {
	family rules.Family // that the rule is known to be limited to, or Inet
	// protocols are the protocols that the rule is known to be limited to, if isLimited is set.
	protocols []rules.Protocol
	isLimited bool

	sets      setDecoder
	registers [registerCount]*operand
	// pending are the loads that end the rule for packets without the field, as long as no
	// condition depends on the field.
	pending []pendingLoad
	loads   int // counts those loads
	// history is a hash of the expressions so far, with what sets hold in the place of their names;
	// unread reports that it does not stand for all that they depend on.
	history  hash.Hash
	list     attributes // the expressions that are not in it yet
	unhashed int        // how many of them have been carried out
	unread   bool
	draws    int // counts the conditions that draw

	interval interval
	rule     rules.Rule
	hasActed bool // the rule has another action than Count
	// undo is where to cut the rule off if an expression follows: then the last one was not decoded
	// right.
	undo *cut
	// splits reports that a map may become several rules; then these are the branches of the map
	// that was read last.
	splits   bool
	split    bool // it has become branches, perhaps none
	branches []rules.Rule
	room     *int // for what branches and tuples take; see maxExpansion
}

// A pendingLoad is a load that ends the rule for packets without the field.
type pendingLoad struct {
	number int
	text   string
	data   string
	noData bool
}

// A cut is the number of matches and actions that a rule had.
type cut struct{ matches, actions int }

// decode reads the whole rule.
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
		d.expression(name, e.Get(unix.NFTA_EXPR_DATA))
	})
	d.closeInterval()
	if !wellFormed {
		d.undoLast()
		d.unknown("malformed list of expressions", rules.Anything, rules.NoData)
	}
	d.finish()
}

// undoLast takes back what was decoded on the condition that no expression follows: one follows.
func (d *ruleDecoder) undoLast() {
	switch {
	case d.split:
		d.split, d.branches = false, nil
		d.unknown("lookup: not the last expression", rules.Anything, d.identity())
	case d.undo != nil:
		d.rule.Matches, d.rule.Actions = d.rule.Matches[:d.undo.matches], d.rule.Actions[:d.undo.actions]
		d.undo = nil
		d.unknown("nat: not the last expression", rules.Anything, d.identity())
	}
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

// unknown adds what the model has no word for: a condition, or an action.
func (d *ruleDecoder) unknown(text string, effect rules.Effect, data string) {
	if effect == rules.Anything {
		d.pending = nil // it may also end the rule
	}
	if effect == rules.Draws && data != rules.NoData {
		data = fmt.Sprintf("%d %s", d.draws, data)
		d.draws++
	}
	d.add(rules.Unknown{Text: text, Effect: effect, Data: data})
}

// add adds a condition.
func (d *ruleDecoder) add(m rules.Match) {
	u, isUnknown := m.(rules.Unknown)
	switch {
	case isUnknown && !u.Effect.IsCondition():
		d.act(u)
	case d.hasActed:
		d.rule.Actions = append(d.rule.Actions, rules.Require{Match: m})
	default:
		d.rule.Matches = append(d.rule.Matches, m)
	}
}

// act adds an action. Whatever of the packet is in a register may not be what the packet has then.
func (d *ruleDecoder) act(action rules.Action) {
	if action == rules.Action(rules.Count{}) {
		d.rule.Actions = append(d.rule.Actions, action)
		return
	}
	d.requirePending()
	d.rule.Actions = append(d.rule.Actions, action)
	d.hasActed = true
	for i, op := range d.registers {
		if op != nil && op.field != fieldConstant {
			d.registers[i] = nil
		}
	}
}

// count adds what changes nothing about the packet, unless something did already.
func (d *ruleDecoder) count() {
	if n := len(d.rule.Actions); n == 0 || d.rule.Actions[n-1] != rules.Action(rules.Count{}) {
		d.act(rules.Count{})
	}
}

// requirePending adds the condition that the packet has what was loaded, for each load on which no
// condition depends.
func (d *ruleDecoder) requirePending() {
	pending := d.pending
	d.pending = nil
	for _, p := range pending {
		data := p.data
		if p.noData {
			data = rules.NoData
		}
		d.unknown(p.text+" exists", rules.Reads, data)
	}
}

// use says that a condition or an unknown action depends on the operands, and so on that the packet
// has them.
func (d *ruleDecoder) use(ops ...operand) {
	if len(d.pending) == 0 {
		return
	}
	d.pending = slices.DeleteFunc(slices.Clone(d.pending), func(p pendingLoad) bool {
		return slices.ContainsFunc(ops, func(op operand) bool { return slices.Contains(op.loads, p.number) })
	})
}

// hashExpression adds an expression to the history, without what changes by itself.
func (d *ruleDecoder) hashExpression(name string, a attributes) {
	fmt.Fprintf(d.history, "\x00%s\x00", name)
	switch name {
	case "counter", "last", "connlimit", "quota", "limit":
		// Their texts have what does not change.
	case "match", "target":
		_, _ = d.history.Write(a.Get(unix.NFTA_MATCH_NAME))
	case "lookup":
		for _, attr := range []uint16{unix.NFTA_LOOKUP_SREG, unix.NFTA_LOOKUP_DREG, unix.NFTA_LOOKUP_FLAGS} {
			_, _ = d.history.Write(a.Get(attr))
		}
		id := d.sets[a.Text(unix.NFTA_LOOKUP_SET)].identity()
		d.unread = d.unread || id == rules.NoData
		fmt.Fprintf(d.history, "\x00%s\x00", id)
	default:
		_, _ = d.history.Write(a)
	}
}

// identity stands for all expressions so far, and for what their sets hold: equal identities are
// equal expressions.
func (d *ruleDecoder) identity() string {
	if d.list == nil {
		return rules.NoData
	}
	if d.history == nil { // most rules never need it
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

// finish brings the rule into the form that Compile gives it.
func (d *ruleDecoder) finish() {
	var families []rules.Family
	for _, m := range d.rule.Matches {
		if addr, ok := m.(rules.MatchAddr); ok && !slices.Contains(families, addr.Family()) {
			families = append(families, addr.Family())
		}
	}
	// The match of an address says the family by itself.
	d.rule.Matches = slices.DeleteFunc(d.rule.Matches, func(m rules.Match) bool {
		f, ok := m.(rules.MatchFamily)
		return ok && slices.Contains(families, f.Family)
	})
	rules.SortMatches(d.rule.Matches)
}

func (d *ruleDecoder) counter(a attributes) error {
	d.rule.Hits = rules.Hits{Packets: a.Number64(unix.NFTA_COUNTER_PACKETS), Bytes: a.Number64(unix.NFTA_COUNTER_BYTES)}
	d.act(rules.Count{})
	return nil
}

// constant reads a nested constant.
func constant(a attributes, attr uint16) []byte {
	return attributes(a.Get(attr)).Get(unix.NFTA_DATA_VALUE)
}

func (d *ruleDecoder) immediate(a attributes) error {
	if a.Number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT {
		value := constant(a, unix.NFTA_IMMEDIATE_DATA)
		return d.store(a, unix.NFTA_IMMEDIATE_DREG, operand{field: fieldConstant, length: len(value), constant: value})
	}
	v, err := decodeVerdict(attributes(a.Get(unix.NFTA_IMMEDIATE_DATA)).Get(unix.NFTA_DATA_VERDICT))
	switch {
	case err != nil:
		return err
	case v.action != nil:
		d.act(v.action)
	case v.ends:
		d.unknown("break", rules.Reads, "")
	default:
		d.count()
	}
	return nil
}

// A verdict is what an expression says about what comes next: an action, or without one whether the
// rule ends.
type verdict struct {
	action rules.Action
	ends   bool
}

// decodeVerdict reads a verdict.
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
		return verdict{action: rules.Jump{Chain: a.Text(unix.NFTA_VERDICT_CHAIN), Goto: code == unix.NFT_GOTO}}, nil
	case unix.NFT_CONTINUE:
		return verdict{}, nil
	case unix.NFT_BREAK:
		return verdict{ends: true}, nil
	default:
		return verdict{}, fmt.Errorf("verdict %d %w", code, errUnsupported)
	}
}
