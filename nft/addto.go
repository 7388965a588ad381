package nft

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"

	"github.com/sluice-mesh/sluice/rules"
)

// AddTo queues messages on c that create the tables of rs, with their sets, chains and rules.
// c.Flush sends them, in one transaction with the other messages that the caller has queued. Flush
// fails if one of the tables exists. If [Encode] rejects rs, AddTo returns its error and queues
// nothing.
//
// Policy routes (rs.Routing) are not part of an nftables transaction: see
// [github.com/sluice-mesh/sluice/nft/route.Ensure]. The library does not write the comments of
// tables. It marks the keys of all anonymous sets as big-endian: the nft command prints user ids
// and interface names in such sets incorrectly. Neither defect affects packets. Use [Apply] unless
// the rules must be committed together with other rules of the caller.
func AddTo(c *nftables.Conn, rs rules.Ruleset) error {
	if _, err := Encode(rs); err != nil {
		return err
	}
	for i := range rs.Tables {
		if err := addTable(c, &rs.Tables[i]); err != nil {
			return fmt.Errorf("table %s %s: %w", rs.Tables[i].Family, rs.Tables[i].Name, err)
		}
	}
	return nil
}

// addTable queues a table with its sets, chains and rules.
func addTable(c *nftables.Conn, t *rules.Table) error {
	table := c.CreateTable(&nftables.Table{
		Name: t.Name, Family: nftables.TableFamily(nfproto(t.Family)),
	})
	named := map[string]setRef{}
	for _, m := range t.Sets() {
		if s := newSet(m); s != nil {
			ref, err := addSet(c, table, s)
			if err != nil {
				return err
			}
			named[m.Set] = ref
		}
	}
	chains := make([]*nftables.Chain, len(t.Chains))
	for i := range t.Chains {
		chains[i] = c.AddChain(libraryChain(table, &t.Chains[i]))
	}
	for i := range t.Chains {
		for j := range t.Chains[i].Rules {
			if err := addRule(c, t.Family, chains[i], &t.Chains[i].Rules[j], named); err != nil {
				return fmt.Errorf("chain %s, rule %d: %w", t.Chains[i].Name, j+1, err)
			}
		}
	}
	return nil
}

// addRule queues a rule after its anonymous sets. named contains the named sets of the table.
func addRule(
	c *nftables.Conn, family rules.Family, chain *nftables.Chain, r *rules.Rule,
	named map[string]setRef,
) error {
	sets, err := ruleSets(r, named, func(s *set) (setRef, error) {
		return addSet(c, chain.Table, s)
	})
	if err != nil {
		return err
	}
	x := expressions{family: family}
	if err := x.addRule(r, sets); err != nil {
		return err
	}
	rule := &nftables.Rule{Table: chain.Table, Chain: chain, Exprs: x.list}
	if r.Comment != "" {
		rule.UserData = userdata.AppendString(nil, userdata.TypeComment, r.Comment)
	}
	c.AddRule(rule)
	return nil
}

// addSet queues a set with its elements and returns the reference for rules.
func addSet(c *nftables.Conn, table *nftables.Table, s *set) (setRef, error) {
	keys := nftables.SetDatatype{Bytes: s.keyLength}
	keys.SetNFTMagic(s.keyType)
	librarySet := &nftables.Set{
		Table: table, Name: s.ref.name, KeyType: keys,
		Anonymous: s.anonymous, Constant: s.anonymous, Interval: s.interval,
	}
	if s.hostOrder {
		librarySet.KeyByteOrder = binaryutil.NativeEndian
	}
	elements := make([]nftables.SetElement, len(s.elements))
	for i, el := range s.elements {
		elements[i] = nftables.SetElement{Key: el.key, IntervalEnd: el.end}
	}
	if err := c.AddSet(librarySet, elements); err != nil {
		return setRef{}, fmt.Errorf("add set %s: %w", librarySet.Name, err)
	}
	return setRef{librarySet.Name, librarySet.ID}, nil
}

// libraryChain converts a chain to the library's type.
func libraryChain(table *nftables.Table, c *rules.Chain) *nftables.Chain {
	chain := &nftables.Chain{Name: c.Name, Table: table}
	if b := c.Base; b != nil {
		policy := nftables.ChainPolicyAccept
		if b.Drop {
			policy = nftables.ChainPolicyDrop
		}
		hook := nftables.ChainHook(b.Hook)
		chain.Type, chain.Hooknum, chain.Policy = nftables.ChainType(b.Type.String()), &hook,
			&policy
		chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(b.Priority))
	}
	return chain
}
