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
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// decodeRule decodes a rule. Expressions that the model cannot represent become [rules.Unknown].
func decodeRule(family rules.Family, sets decodedSets, a attributes) rules.Rule {
	d := ruleDecoder{family: family, sets: sets}
	d.decode(a)
	return d.rule
}

// ruleDecoder evaluates the expressions of a rule symbolically: registers hold operands instead of
// values, and comparisons of registers become matches of the model.
//
// The kernel evaluates expressions in order, and an action remains in effect if a later condition
// is false. Therefore conditions become matches of the rule up to its first action that affects
// packets, and [rules.Require] actions after it.
type ruleDecoder struct {
	family rules.Family // the family to which the rule is limited, or Inet
	// protocols contains the protocols to which the rule is limited, if isLimited is set.
	protocols []rules.Protocol
	isLimited bool

	isSluice  bool // the rule is in Sluice's table
	sets      decodedSets
	registers [registerCount]*operand
	// pending contains the loads of optional fields that no condition depends on yet. Such a load
	// ends the rule for packets without the field.
	pending   []pendingLoad
	loadCount int // number of loads of optional fields
	// history is a hash of the decoded expressions, with the contents of sets instead of their
	// names. Expressions are hashed on demand: unhashed contains the expressions that history does
	// not include yet. The first unhashedCount of them have been decoded.
	history       hash.Hash
	unhashed      attributes
	unhashedCount int
	// isIncomplete is set if history does not cover all data that the expressions depend on.
	isIncomplete bool
	// indexScope identifies the namespace of the interface indexes in the rule. It is zero for
	// rules that were not read from the kernel. loadsIndex is set if the last hashed expression
	// loads an index.
	indexScope netns.ID
	loadsIndex bool
	// unknowns contains the conditions and actions of the remaining placeholder expressions (see
	// unknownExpression), in order.
	unknowns     []rules.Unknown
	varyingCount int // number of random or stateful conditions
	// inputs contains the inputs on which the expressions so far may depend.
	inputs rules.Inputs

	// lowerBound is a comparison with >= that the next expression may complete to an interval.
	lowerBound lowerBound
	rule       rules.Rule
	hasActed   bool // the rule has an action that affects packets
	// differsFromXTables is set if the rule has an nftables expression that may treat some packets
	// differently from the corresponding extension of xtables; see [rules.Rule.XTables].
	differsFromXTables bool
	// needsConnection is set if the last action ends the rule for packets without a connection.
	needsConnection bool
	// undo is the length of the rule before the last expression if the decoding of this expression
	// is correct only at the end of the rule, and nil otherwise.
	undo *ruleLength
	// maySplit permits a map to split the rule into branches. isSplit is set if the last expression
	// has split the rule.
	maySplit bool
	isSplit  bool
	// withoutSplit adds the last expression without splitting the rule. It is nil if the model
	// cannot represent the expression in one rule.
	withoutSplit func()
	branches     []rules.Rule
	budget       *int // remaining size of branches and tuples; see maxExpansion
}

// A pendingLoad is a load that ends the rule for packets without the field. number identifies it in
// [operand.loads]. text, data and noData are those of the loaded operand.
type pendingLoad struct {
	number int
	text   string
	data   string
	noData bool
}

// A ruleLength contains the numbers of matches and actions of a rule.
type ruleLength struct{ matches, actions int }

// decode decodes the attributes of a rule into d.rule, or into d.branches if the rule is split.
func (d *ruleDecoder) decode(a attributes) {
	d.unhashed = a.Get(unix.NFTA_RULE_EXPRESSIONS)
	if d.budget == nil {
		budget := maxExpansion
		d.budget = &budget
	}
	d.isSluice = d.family == rules.Inet && a.HasText(unix.NFTA_RULE_TABLE, rules.TableName)
	d.rule.Handle = rules.Handle(a.Number64(unix.NFTA_RULE_HANDLE))
	d.rule.Comment = comment(a.Get(unix.NFTA_RULE_USERDATA))
	wellFormed := d.unhashed.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		name := string(bytes.TrimRight(e.Get(unix.NFTA_EXPR_NAME), "\x00"))
		if !d.lowerBound.isContinuedBy(name, e.Get(unix.NFTA_EXPR_DATA)) {
			d.closeLowerBound()
		}
		d.undoLast()
		d.decodeExpression(name, e.Get(unix.NFTA_EXPR_DATA))
	})
	d.closeLowerBound()
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
	case d.isSplit && d.withoutSplit != nil:
		again := d.withoutSplit
		d.isSplit, d.branches, d.withoutSplit = false, nil, nil
		again()
	case d.isSplit:
		d.isSplit, d.branches = false, nil
		d.addUnknown("lookup: not the last expression", rules.AnyEffect, d.identity())
	case d.undo != nil:
		d.rule.Matches, d.rule.Actions = d.rule.Matches[:d.undo.matches],
			d.rule.Actions[:d.undo.actions]
		d.undo = nil
		d.addUnknown("nat or map: not the last expression", rules.AnyEffect, d.identity())
	}
}

// errUnsupported is the error for expressions that the model cannot represent.
var errUnsupported = errors.New("unknown to the model")

// unknownText describes an expression that is unknown to the model by its name and the error.
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
		// The number distinguishes equal conditions of one rule, which have different results.
		data = fmt.Sprintf("%d %s", d.varyingCount, data)
		d.varyingCount++
	}
	d.addCondition(rules.Unknown{Text: text, Effect: effect, Data: data})
}

// addCondition adds a condition: as a match before the first action, and as a [rules.Require] after
// it. A [rules.Unknown] that is not a condition becomes an action.
func (d *ruleDecoder) addCondition(m rules.Match) {
	d.requireConnection()
	u, isUnknown := m.(rules.Unknown)
	if isUnknown && u.Ignores == 0 {
		u.Ignores = rules.AllInputs &^ d.inputs
		m = u
	}
	switch {
	case isUnknown && !u.Effect.IsCondition():
		d.addAction(u)
	case d.hasActed:
		d.rule.Actions = append(d.rule.Actions, rules.Require{Match: m})
	default:
		d.rule.Matches = append(d.rule.Matches, m)
	}
}

// addAction adds an action. If the action affects packets, addAction clears the registers that
// contain fields of the packet, because the action may change the fields.
func (d *ruleDecoder) addAction(action rules.Action) {
	if !rules.AffectsPackets(action) {
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

// addNoEffect adds an expression that has no effect on packets, such as log. In a foreign table,
// the given action represents it. In Sluice's table, an unknown write represents it, so that it is
// reported as a difference: log, for example, can copy packets to a process.
func (d *ruleDecoder) addNoEffect(text string, a attributes, action rules.NoEffect) {
	if d.isSluice {
		d.addCondition(rules.Unknown{
			Text: text, Effect: rules.Writes, Data: d.identityWith(a), State: text,
		})
		return
	}
	d.addAction(action)
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

// clearPending removes the pending loads of the operands. It is called for a condition or an
// unknown action that depends on the operands, and thereby on the existence of their fields.
func (d *ruleDecoder) clearPending(ops ...operand) {
	if len(d.pending) == 0 {
		return
	}
	d.pending = slices.DeleteFunc(slices.Clone(d.pending), func(p pendingLoad) bool {
		return slices.ContainsFunc(ops, func(op operand) bool {
			return slices.Contains(op.loads, p.number)
		})
	})
}

// hashExpression adds an expression to the hash of the rule, without values that packets change,
// such as counters.
func (d *ruleDecoder) hashExpression(name string, a attributes) {
	fmt.Fprintf(d.history, "\x00%s\x00", name)
	if d.loadsIndex && !comparesKnownIndex(name, a) {
		fmt.Fprint(d.history, d.indexScope)
	}
	d.loadsIndex = loadsIndex(name, a)
	switch name {
	case "counter", "last", "log":
		// These have no effect on packets.
	case "connlimit", "quota", "limit":
		// The text of the condition includes the constant values.
	case "match", "target":
		// The text of the match or action includes the rest of the data.
		_, _ = d.history.Write(a.Get(unix.NFTA_MATCH_NAME))
	case "lookup":
		for _, attr := range []uint16{
			unix.NFTA_LOOKUP_SREG, unix.NFTA_LOOKUP_DREG, unix.NFTA_LOOKUP_FLAGS,
		} {
			_, _ = d.history.Write(a.Get(attr))
		}
		id := d.sets[a.Text(unix.NFTA_LOOKUP_SET)].identity()
		d.isIncomplete = d.isIncomplete || id == rules.NoData
		fmt.Fprintf(d.history, "\x00%s\x00", id)
	case "dynset":
		_, _ = d.history.Write(a)
		id := d.sets[a.Text(unix.NFTA_DYNSET_SET_NAME)].changeIdentity()
		d.isIncomplete = d.isIncomplete || id == rules.NoData
		fmt.Fprintf(d.history, "\x00%s\x00", id)
	default:
		_, _ = d.history.Write(a)
	}
}

// identity returns a hash of all expressions so far and of the contents of their sets. Lists of
// expressions are equivalent if their identities and the texts of their matches and actions are
// equal. It returns [rules.NoData] in a branch, and if isIncomplete is set, for example because the
// contents of a set are unknown.
func (d *ruleDecoder) identity() string {
	if d.unhashed == nil {
		return rules.NoData
	}
	if d.history == nil { // created on demand: most rules need no identity
		d.history = sha256.New()
	}
	for ; d.unhashedCount > 0; d.unhashedCount-- {
		length := int(native.Uint16(d.unhashed))
		e := d.unhashed[unix.NLA_HDRLEN:length]
		d.hashExpression(e.Text(unix.NFTA_EXPR_NAME), e.Get(unix.NFTA_EXPR_DATA))
		d.unhashed = d.unhashed[min(nlmsg.Align(length), len(d.unhashed)):]
	}
	if d.isIncomplete {
		return rules.NoData
	}
	return fmt.Sprintf("%x", d.history.Sum(nil))
}

// finish gives the matches the order of [rules.Compile] and removes implied ones. It replaces the
// rule with an unknown action if [rules.Rule.XTables] would be wrong for some of its conditions.
func (d *ruleDecoder) finish() {
	if d.differsFromXTables && d.rule.XTables {
		// XTables applies to all conditions of a rule, but this rule mixes extensions of xtables
		// with expressions that may differ from the corresponding extensions. No known program
		// writes such a rule.
		d.isSplit, d.branches, d.undo = false, nil, nil
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

// decodeCounter decodes a counter and its values.
func (d *ruleDecoder) decodeCounter(a attributes) error {
	d.rule.Hits = decodeHits(a)
	d.addAction(rules.Count{})
	return nil
}

// constantValue returns the value of a constant, which is in a nested attribute.
func constantValue(a attributes, attr uint16) []byte {
	return attributes(a.Get(attr)).Get(unix.NFTA_DATA_VALUE)
}

// decodeImmediate decodes the load of a constant, or a verdict.
func (d *ruleDecoder) decodeImmediate(a attributes) error {
	if a.Number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT {
		value := constantValue(a, unix.NFTA_IMMEDIATE_DATA)
		return d.store(a, unix.NFTA_IMMEDIATE_DREG, operand{
			field: fieldConstant, length: len(value), constant: value,
		})
	}
	v, err := decodeVerdict(attributes(a.Get(unix.NFTA_IMMEDIATE_DATA)).Get(unix.NFTA_DATA_VERDICT))
	switch {
	case err != nil:
		return err
	case v.action != nil:
		d.addAction(v.action)
	case v.endsRule:
		d.addUnknown("break", rules.Reads, "")
	default:
		d.addNoEffect("continue", a, rules.NoEffect{Text: "continue"})
	}
	return nil
}

// A verdict is a decoded NFTA_DATA_VERDICT. Its action is nil for break, which sets endsRule, and
// for continue, which has no effect.
type verdict struct {
	action   rules.Action
	endsRule bool
}

// decodeVerdict decodes the attribute NFTA_DATA_VERDICT.
func decodeVerdict(a attributes) (verdict, error) {
	if len(a.Get(unix.NFTA_VERDICT_CODE)) != 4 {
		return verdict{}, fmt.Errorf("malformed verdict %w", errUnsupported)
	}
	switch code := int32(a.Number(unix.NFTA_VERDICT_CODE)); code {
	case 0: // NF_DROP
		return verdict{action: rules.Drop}, nil
	case 1: // NF_ACCEPT
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
		return verdict{endsRule: true}, nil
	default:
		return verdict{}, fmt.Errorf("verdict %d %w", code, errUnsupported)
	}
}
