package nft

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"

	"github.com/sluice-mesh/sluice/rules"
)

// AddTo queues messages on c that create the tables of rs, with their sets, chains and rules.
// Nothing is sent before c.Flush, which commits them together with all else that the caller has
// queued. Flush fails if one of the tables exists. After an error for a rule that nf_tables
// cannot express nothing is queued.
//
// Policy routes (rs.Routing) are not part of an nftables transaction: see
// [github.com/sluice-mesh/sluice/nft/route.Ensure]. The library writes no comments of tables, and
// marks the keys of all anonymous sets as big-endian, so that the nft command prints user ids and
// interface names in such sets wrongly. Neither changes what the kernel does. Use [Apply] unless
// the rules must be committed together with rules of the caller's.
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

// addTable queues a table.
func addTable(c *nftables.Conn, t *rules.Table) error {
	table := c.CreateTable(&nftables.Table{
		Name: t.Name, Family: nftables.TableFamily(nfproto(t.Family)),
	})
	named := map[string]setRef{}
	for _, m := range t.Sets() {
		if s := setOf(m); s != nil {
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

// addRule queues a rule after the anonymous sets that it needs. named are the sets of the table.
func addRule(
	c *nftables.Conn, family rules.Family, chain *nftables.Chain, r *rules.Rule,
	named map[string]setRef,
) error {
	sets, err := ruleSets(r, named, func(s *set) (setRef, error) { return addSet(c, chain.Table, s) })
	if err != nil {
		return err
	}
	x := expressions{family: family}
	if err := x.rule(r, sets); err != nil {
		return err
	}
	rule := &nftables.Rule{Table: chain.Table, Chain: chain, Exprs: x.list}
	if r.Comment != "" {
		rule.UserData = userdata.AppendString(nil, userdata.TypeComment, r.Comment)
	}
	c.AddRule(rule)
	return nil
}

// addSet queues a set with its elements and returns how rules refer to it.
func addSet(c *nftables.Conn, table *nftables.Table, s *set) (setRef, error) {
	keys := nftables.SetDatatype{Bytes: s.keyLength}
	keys.SetNFTMagic(s.keyType)
	to := &nftables.Set{
		Table: table, Name: s.ref.name, KeyType: keys,
		Anonymous: s.anonymous, Constant: s.anonymous, Interval: s.interval,
	}
	if s.hostOrder {
		to.KeyByteOrder = binaryutil.NativeEndian
	}
	elements := make([]nftables.SetElement, len(s.elements))
	for i, el := range s.elements {
		elements[i] = nftables.SetElement{Key: el.key, IntervalEnd: el.end}
	}
	if err := c.AddSet(to, elements); err != nil {
		return setRef{}, fmt.Errorf("add set %s: %w", to.Name, err)
	}
	return setRef{to.Name, to.ID}, nil
}

// libraryChain returns the library's form of a chain.
func libraryChain(table *nftables.Table, from *rules.Chain) *nftables.Chain {
	chain := &nftables.Chain{Name: from.Name, Table: table}
	if b := from.Base; b != nil {
		policy := nftables.ChainPolicyAccept
		if b.Drop {
			policy = nftables.ChainPolicyDrop
		}
		hook := nftables.ChainHook(hookNumbers[b.Hook])
		chain.Type, chain.Hooknum, chain.Policy = nftables.ChainType(b.Type.String()), &hook, &policy
		chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(b.Priority))
	}
	return chain
}
