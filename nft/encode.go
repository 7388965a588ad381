package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// A Transaction is a batch of netlink messages that the kernel carries out as a whole or not at
// all.
type Transaction struct {
	buf []byte
	// descriptions say what each message is about; its index is the message's sequence number.
	descriptions []description
	// deletes reports that the kernel has old objects to free afterwards, for which closing the
	// socket waits.
	deletes bool
}

// Bytes returns the messages as they are sent.
func (t *Transaction) Bytes() []byte { return t.buf }

// String lists the messages, one a line.
func (t *Transaction) String() string {
	b := new(strings.Builder)
	for i, d := range t.descriptions {
		fmt.Fprintf(b, "%3d %s\n", i, d)
	}
	return b.String()
}

// A description is what a message is about, for errors and listings.
type description struct {
	msg     int
	table   *rules.Table
	chain   *rules.Chain
	rule    *rules.Rule
	index   int // of the rule in the chain
	set     string
	element string // of a named set: the first of the message
	refused string // the element of a named set that the kernel refused, if it told which
}

// element returns the element of a named set that lies at an offset of a message, empty if none
// does.
func (t *Transaction) element(seq, offset uint32) string {
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
	key := constant(el, unix.NFTA_SET_ELEM_KEY)
	if key == nil {
		return ""
	}
	return formatKey(key)
}

// messageNames are nft's commands for the messages that we send.
var messageNames = [...]string{
	unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table", unix.NFT_MSG_NEWCHAIN: "add chain",
	unix.NFT_MSG_DELCHAIN: "delete chain", unix.NFT_MSG_NEWRULE: "add rule", unix.NFT_MSG_DELRULE: "delete rule",
	unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set", unix.NFT_MSG_NEWSETELEM: "add elements", unix.NFT_MSG_DELSETELEM: "delete elements",
	unix.NFNL_MSG_BATCH_BEGIN: "begin", unix.NFNL_MSG_BATCH_END: "commit",
}

// String writes what the message does in nft's words.
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
	case d.refused != "":
		text += fmt.Sprintf(" %s: %s", d.set, d.refused)
	case d.element != "":
		text += fmt.Sprintf(" %s from %s on", d.set, d.element)
	case d.set != "":
		text += " " + d.set
	case d.chain != nil && d.chain.Base != nil:
		text += " { " + d.chain.Base.String() + " }"
	}
	return text
}

// encoder writes a transaction.
type encoder struct {
	messages
	table        *rules.Table
	descriptions []description
	exprs        expressions // of the rule that is being written
	lastSetID    uint32
	deletes      bool
}

// newEncoder begins a batch. A generation other than 0 makes the kernel refuse it when the ruleset
// has changed since.
func newEncoder(generation uint32) *encoder {
	// Enough for the ruleset of most pods.
	e := &encoder{messages: messages{buf: make([]byte, 0, 10<<10)}, descriptions: make([]description, 0, 40)}
	e.beginBatch(generation)
	e.descriptions = append(e.descriptions, description{msg: unix.NFNL_MSG_BATCH_BEGIN})
	return e
}

// message begins a message about something in the current table.
func (e *encoder) message(msg int, flags uint16, d description) {
	d.msg, d.table = msg, e.table
	e.begin(messageType(msg), flags, uint32(len(e.descriptions)), nfproto(e.table.Family), 0)
	e.descriptions = append(e.descriptions, d)
}

// transaction ends the batch. Only the last message is acknowledged: when the kernel has committed
// all.
func (e *encoder) transaction() *Transaction {
	e.ack()
	e.endBatch(uint32(len(e.descriptions)))
	e.descriptions = append(e.descriptions, description{msg: unix.NFNL_MSG_BATCH_END})
	return &Transaction{buf: e.buf, descriptions: e.descriptions, deletes: e.deletes}
}

// Encode returns the transaction that creates the ruleset where none of its tables exist. Nothing
// is sent. It fails for rules that nf_tables cannot express, none of which [rules.Compile] makes.
func Encode(rs rules.Ruleset) (*Transaction, error) { return encode(rs, nil, 0) }

// encode deletes the tables of old and creates the tables of rs.
func encode(rs rules.Ruleset, old []rules.Table, generation uint32) (*Transaction, error) {
	e := newEncoder(generation)
	for i := range old {
		e.deleteTable(&old[i])
	}
	var faults []error
	for i := range rs.Tables {
		faults = append(faults, e.writeTable(&rs.Tables[i]))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return e.transaction(), nil
}

// writeTable creates a table with its sets, chains and rules. It must not exist: of two that
// install at once, one fails.
func (e *encoder) writeTable(t *rules.Table) error {
	e.table = t
	e.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, description{})
	e.text(unix.NFTA_TABLE_NAME, t.Name)
	if t.Comment != "" {
		e.commentAttr(nftaTableUserdata, t.Comment)
	}
	e.end()
	chains := make([]*rules.Chain, len(t.Chains))
	for i := range t.Chains {
		chains[i] = &t.Chains[i]
	}
	return errors.Join(expressibleComment(t.Comment), e.fillTable(t, chains))
}

// fillTable creates the named sets and the given chains of a table, and then the rules of all its
// chains.
func (e *encoder) fillTable(t *rules.Table, chains []*rules.Chain) error {
	refs := map[string]setRef{}
	for _, m := range t.Sets() {
		if s := setOf(m); s != nil {
			s.ref.id = e.nextSetID()
			refs[m.Set] = s.ref
			e.writeSet(s, description{})
		}
	}
	for _, c := range chains {
		e.writeChain(c)
	}
	var faults []error
	for i := range t.Chains {
		c := &t.Chains[i]
		for j := range c.Rules {
			if err := e.writeRule(c, j, refs); err != nil {
				d := description{msg: unix.NFT_MSG_NEWRULE, table: t, chain: c, rule: &c.Rules[j], index: j}
				faults = append(faults, fmt.Errorf("%s: %w", d, err))
			}
		}
	}
	return errors.Join(faults...)
}

func (e *encoder) nextSetID() uint32 {
	e.lastSetID++
	return e.lastSetID
}

// hookNumbers are the kernel's numbers of the hooks.
var hookNumbers = [...]uint32{
	rules.Prerouting: unix.NF_INET_PRE_ROUTING, rules.Input: unix.NF_INET_LOCAL_IN, rules.Forward: unix.NF_INET_FORWARD,
	rules.Output: unix.NF_INET_LOCAL_OUT, rules.Postrouting: unix.NF_INET_POST_ROUTING, rules.Ingress: unix.NF_INET_NUMHOOKS,
}

func (e *encoder) writeChain(c *rules.Chain) {
	e.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, description{chain: c})
	e.text(unix.NFTA_CHAIN_TABLE, e.table.Name)
	e.text(unix.NFTA_CHAIN_NAME, c.Name)
	if b := c.Base; b != nil {
		hook := e.nest(unix.NFTA_CHAIN_HOOK)
		e.number(unix.NFTA_HOOK_HOOKNUM, hookNumbers[b.Hook])
		e.number(unix.NFTA_HOOK_PRIORITY, uint32(int32(b.Priority)))
		e.endNest(hook)
		policy := uint32(1)
		if b.Drop {
			policy = 0
		}
		e.number(unix.NFTA_CHAIN_POLICY, policy)
		e.text(unix.NFTA_CHAIN_TYPE, b.Type.String())
	}
	e.end()
}

// writeRule appends a rule to its chain, after the anonymous sets that it needs.
func (e *encoder) writeRule(c *rules.Chain, index int, named map[string]setRef) error {
	r := &c.Rules[index]
	if err := expressible(r); err != nil {
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
	e.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, d)
	e.text(unix.NFTA_RULE_TABLE, e.table.Name)
	e.text(unix.NFTA_RULE_CHAIN, c.Name)
	list := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	err = e.expressions(r, refs)
	e.endNest(list)
	if r.Comment != "" {
		e.commentAttr(unix.NFTA_RULE_USERDATA, r.Comment)
	}
	e.end()
	return err
}

// ruleSets returns the sets of a rule's matches, nil if no match needs one. It takes named sets
// from named, and makes anonymous sets by add.
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
		if refs[i], err = add(setOf(m)); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// expressions writes what a rule does. refs are the sets of its matches, nil if no match needs one.
func (e *encoder) expressions(r *rules.Rule, refs []setRef) error {
	e.exprs.family = e.table.Family
	e.exprs.reset()
	if err := e.exprs.rule(r, refs); err != nil {
		return err
	}
	for _, x := range e.exprs.list {
		if err := e.write(x); err != nil {
			return err
		}
	}
	return nil
}
