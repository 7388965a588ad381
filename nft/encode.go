package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// A Transaction is a batch of netlink messages that the kernel executes completely or not at all.
type Transaction struct {
	buf []byte
	// descriptions describes the messages; the index is the sequence number.
	descriptions []description
	// deletes reports that the transaction deletes objects. Closing the socket then waits until the
	// kernel has freed them.
	deletes bool
}

// Bytes returns the encoded messages.
func (t *Transaction) Bytes() []byte { return t.buf }

// lastSequence returns the sequence number of the last message before the end of the batch.
func (t *Transaction) lastSequence() uint32 { return uint32(len(t.descriptions) - 2) }

// String lists the messages, one per line.
func (t *Transaction) String() string {
	b := new(strings.Builder)
	for i, d := range t.descriptions {
		fmt.Fprintf(b, "%3d %s\n", i, d)
	}
	return b.String()
}

// A description describes a message of a transaction for errors and listings.
type description struct {
	msg      int // the type of the message, such as NFT_MSG_NEWRULE
	table    *rules.Table
	chain    *rules.Chain
	rule     *rules.Rule
	index    int // the index of the rule in the chain
	set      string
	element  string // the first element of the message, for a named set
	rejected string // the element of a named set that the kernel rejected, if known
}

// elementAt returns the text of the set element at an offset in the message with the sequence
// number. It returns "" if the message does not change a named set or has no element at the offset.
func (t *Transaction) elementAt(seq, offset uint32) string {
	if t.descriptions[seq].element == "" {
		return ""
	}
	buf := t.buf
	for range seq {
		buf = buf[nlmsg.Align(int(native.Uint32(buf))):]
	}
	if uint64(offset) >= uint64(native.Uint32(buf)) {
		return ""
	}
	el := attributes(attributes(buf[offset:native.Uint32(buf)]).Get(unix.NFTA_LIST_ELEM))
	key := constantValue(el, unix.NFTA_SET_ELEM_KEY)
	if key == nil {
		return ""
	}
	return keyText(key)
}

// messageNames contains nft's commands for the messages, and names for the beginning and the end of
// a batch.
var messageNames = [...]string{
	unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table",
	unix.NFT_MSG_NEWCHAIN: "add chain", unix.NFT_MSG_DELCHAIN: "delete chain",
	unix.NFT_MSG_NEWRULE: "add rule", unix.NFT_MSG_DELRULE: "delete rule",
	unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
	unix.NFT_MSG_NEWSETELEM: "add elements", unix.NFT_MSG_DELSETELEM: "delete elements",
	unix.NFNL_MSG_BATCH_BEGIN: "begin", unix.NFNL_MSG_BATCH_END: "commit",
}

// String describes the message in nft's syntax.
func (d description) String() string {
	text := messageNames[d.msg]
	if d.table == nil {
		return text
	}
	text += " " + d.table.Family.String() + " " + d.table.Name
	if d.chain != nil {
		text += " " + d.chain.Name
	}
	switch {
	case d.rule != nil && d.msg != unix.NFT_MSG_DELRULE:
		text += fmt.Sprintf(" #%d: %s", d.index+1, d.rule)
	case d.rule != nil:
		text += fmt.Sprintf(" handle %d", d.rule.Handle)
	case d.rejected != "":
		text += fmt.Sprintf(" %s: %s", d.set, d.rejected)
	case d.element != "":
		text += fmt.Sprintf(" %s from %s on", d.set, d.element)
	case d.set != "":
		text += " " + d.set
	case d.chain != nil && d.chain.Base != nil:
		text += " { " + d.chain.Base.String() + " }"
	}
	return text
}

// encoder encodes a transaction.
type encoder struct {
	messages
	table        *rules.Table
	descriptions []description
	exprs        expressions // of the current rule
	lastSetID    uint32
	deletes      bool
}

// anyGeneration makes the kernel accept a batch regardless of the ruleset's generation.
const anyGeneration = 0

// newEncoder starts a batch. Unless generation is anyGeneration, the kernel rejects the batch if
// the ruleset has another generation.
func newEncoder(generation uint32) *encoder {
	// The capacity is sufficient for the ruleset of most pods.
	e := &encoder{
		messages: messages{buf: make([]byte, 0, 10<<10)}, descriptions: make([]description, 0, 40),
	}
	e.beginBatch(generation)
	e.descriptions = append(e.descriptions, description{msg: unix.NFNL_MSG_BATCH_BEGIN})
	return e
}

// beginMessage starts a message about an object of the current table.
func (e *encoder) beginMessage(msg int, flags uint16, d description) {
	d.msg, d.table = msg, e.table
	e.begin(messageType(msg), flags, uint32(len(e.descriptions)), nfproto(e.table.Family), 0)
	e.descriptions = append(e.descriptions, d)
}

// transaction ends the batch. Only the last message requests an acknowledgement, which the kernel
// sends after the commit.
func (e *encoder) transaction() *Transaction {
	e.requestAck()
	e.endBatch(uint32(len(e.descriptions)))
	e.descriptions = append(e.descriptions, description{msg: unix.NFNL_MSG_BATCH_END})
	return &Transaction{buf: e.buf, descriptions: e.descriptions, deletes: e.deletes}
}

// Encode returns the transaction that creates the tables of the ruleset. It sends nothing. The
// kernel rejects the transaction if one of the tables exists. Encode returns an error for rules
// that the encoder does not support; [rules.Compile] does not create such rules.
func Encode(rs rules.Ruleset) (*Transaction, error) { return encode(rs, nil, anyGeneration) }

// encode returns the transaction that deletes the tables of old and creates the tables of rs.
// generation is as in newEncoder.
func encode(rs rules.Ruleset, old []rules.Table, generation uint32) (*Transaction, error) {
	e := newEncoder(generation)
	for i := range old {
		e.deleteTable(&old[i])
	}
	var errs []error
	for i := range rs.Tables {
		errs = append(errs, e.writeTable(&rs.Tables[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return e.transaction(), nil
}

// writeTable creates a table with its sets, chains and rules. The transaction fails if the table
// exists, so that one of two concurrent installations fails.
func (e *encoder) writeTable(t *rules.Table) error {
	e.table = t
	e.beginMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, description{})
	e.addText(unix.NFTA_TABLE_NAME, t.Name)
	if t.Comment != "" {
		e.addComment(nftaTableUserdata, t.Comment)
	}
	e.end()
	chains := make([]*rules.Chain, len(t.Chains))
	for i := range t.Chains {
		chains[i] = &t.Chains[i]
	}
	return errors.Join(checkComment(t.Comment), e.fillTable(t, chains))
}

// fillTable creates the named sets of a table, the given chains, and then the rules of all chains.
// chains contains the chains that do not exist yet.
func (e *encoder) fillTable(t *rules.Table, chains []*rules.Chain) error {
	refs := map[string]setRef{}
	for _, m := range t.Sets() {
		if s := newSet(m); s != nil {
			s.ref.id = e.nextSetID()
			refs[m.Set] = s.ref
			e.writeSet(s, description{})
		}
	}
	for _, c := range chains {
		e.writeChain(c)
	}
	var errs []error
	for i := range t.Chains {
		c := &t.Chains[i]
		for j := range c.Rules {
			if err := e.writeRule(c, j, refs); err != nil {
				d := description{
					msg: unix.NFT_MSG_NEWRULE, table: t, chain: c, rule: &c.Rules[j], index: j,
				}
				errs = append(errs, fmt.Errorf("%s: %w", d, err))
			}
		}
	}
	return errors.Join(errs...)
}

// nextSetID returns a new id for a set in the transaction.
func (e *encoder) nextSetID() uint32 {
	e.lastSetID++
	return e.lastSetID
}

// writeChain creates a chain without its rules.
func (e *encoder) writeChain(c *rules.Chain) {
	e.beginMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, description{chain: c})
	e.addText(unix.NFTA_CHAIN_TABLE, e.table.Name)
	e.addText(unix.NFTA_CHAIN_NAME, c.Name)
	if b := c.Base; b != nil {
		hook := e.beginNest(unix.NFTA_CHAIN_HOOK)
		e.addNumber(unix.NFTA_HOOK_HOOKNUM, uint32(b.Hook))
		e.addNumber(unix.NFTA_HOOK_PRIORITY, uint32(int32(b.Priority)))
		e.endNest(hook)
		policy := expr.VerdictAccept
		if b.Drop {
			policy = expr.VerdictDrop
		}
		e.addNumber(unix.NFTA_CHAIN_POLICY, uint32(policy))
		e.addText(unix.NFTA_CHAIN_TYPE, b.Type.String())
	}
	e.end()
}

// writeRule creates the anonymous sets of the rule at an index of the chain, and appends the rule
// to the chain. named contains the named sets of the table.
func (e *encoder) writeRule(c *rules.Chain, index int, named map[string]setRef) error {
	r := &c.Rules[index]
	if err := checkRule(r); err != nil {
		return err
	}
	d := description{chain: c, rule: r, index: index}
	refs, err := ruleSets(r, named, func(s *set) (setRef, error) {
		s.ref = setRef{name: "__set%d", id: e.nextSetID()}
		e.writeSet(s, d)
		return s.ref, nil
	})
	if err != nil {
		return err
	}
	e.beginMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, d)
	e.addText(unix.NFTA_RULE_TABLE, e.table.Name)
	e.addText(unix.NFTA_RULE_CHAIN, c.Name)
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	err = e.writeExpressions(r, refs)
	e.endNest(list)
	if r.Comment != "" {
		e.addComment(unix.NFTA_RULE_USERDATA, r.Comment)
	}
	e.end()
	return err
}

// ruleSets returns the references to the sets of a rule's matches, or nil if no match needs a set.
// It looks up named sets in named and creates anonymous sets with add.
func ruleSets(
	r *rules.Rule, named map[string]setRef, add func(*set) (setRef, error),
) ([]setRef, error) {
	var refs []setRef
	for i, m := range r.Matches {
		if !needsSet(m) {
			continue
		}
		if refs == nil {
			refs = make([]setRef, len(r.Matches))
		}
		if addr, ok := m.(rules.MatchAddr); ok && addr.Set != "" {
			refs[i] = named[addr.Set]
			continue
		}
		var err error
		if refs[i], err = add(newSet(m)); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// writeExpressions encodes the expressions of a rule. refs contains the references to the sets of
// its matches; it is nil if no match needs a set.
func (e *encoder) writeExpressions(r *rules.Rule, refs []setRef) error {
	e.exprs.family = e.table.Family
	e.exprs.reset()
	if err := e.exprs.addRule(r, refs); err != nil {
		return err
	}
	for _, x := range e.exprs.list {
		if err := e.marshal(x); err != nil {
			return err
		}
	}
	return nil
}

// deleteTable deletes a table with its content. It makes the table the current table.
func (e *encoder) deleteTable(t *rules.Table) {
	e.table, e.deletes = t, true
	e.beginMessage(unix.NFT_MSG_DELTABLE, 0, description{})
	e.addText(unix.NFTA_TABLE_NAME, t.Name)
	e.end()
}

// deleteChain deletes a chain, which must have no rules.
func (e *encoder) deleteChain(c *rules.Chain) {
	e.beginMessage(unix.NFT_MSG_DELCHAIN, 0, description{chain: c})
	e.addText(unix.NFTA_CHAIN_TABLE, e.table.Name)
	e.addText(unix.NFTA_CHAIN_NAME, c.Name)
	e.end()
}

// deleteRule deletes a rule of the chain. It deletes all rules of the chain if r is nil, and all
// rules of the table if c is nil too.
func (e *encoder) deleteRule(c *rules.Chain, r *rules.Rule) {
	e.beginMessage(unix.NFT_MSG_DELRULE, 0, description{chain: c, rule: r})
	e.addText(unix.NFTA_RULE_TABLE, e.table.Name)
	if c != nil {
		e.addText(unix.NFTA_RULE_CHAIN, c.Name)
	}
	if r != nil {
		e.addAttr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, uint64(r.Handle)))
	}
	e.end()
}

// deleteSet deletes a named set with its elements.
func (e *encoder) deleteSet(name string) {
	e.beginMessage(unix.NFT_MSG_DELSET, 0, description{set: name})
	e.addText(unix.NFTA_SET_TABLE, e.table.Name)
	e.addText(unix.NFTA_SET_NAME, name)
	e.end()
}
