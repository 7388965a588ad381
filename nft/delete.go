package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

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
