package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A foundTable is a table in the kernel. Its chains and rules may not have been read yet.
type foundTable struct {
	rules.Table
	// splitsRules makes the decoder split rules at maps; see decodeRules.
	splitsRules bool
	// untilChange is [ReadOptions.UntilChange].
	untilChange bool
	// dormant reports that the table has the flag dormant: the kernel calls none of its chains.
	dormant bool
	// boundChains contains the names of the chains that the kernel deletes with the rule that jumps
	// to them (NFT_CHAIN_BINDING, Linux 5.9 and later). nft creates such chains for jump { ... }.
	boundChains map[string]bool
	// namedSets contains the names of the sets that are not anonymous.
	namedSets []string
	// elements contains the number of elements of each set. If another process has changed a set,
	// the number may differ from the one that the encoder would write.
	elements map[string]int
}

// decodeTable decodes a table without its chains.
func decodeTable(family rules.Family, a attributes) foundTable {
	flags := a.Number(unix.NFTA_TABLE_FLAGS)
	return foundTable{
		Table: rules.Table{
			Family: family, Name: a.Text(unix.NFTA_TABLE_NAME),
			Comment: comment(a.Get(nftaTableUserdata)),
			Owned:   flags&nftTableFlagOwner != 0,
		},
		dormant: flags&unix.NFT_TABLE_F_DORMANT != 0,
	}
}

// addChain adds a chain without its rules. It omits the hook of a chain in a dormant table, because
// the kernel does not call the chain.
func (t *foundTable) addChain(a attributes) {
	c := decodeChain(a)
	if t.dormant {
		c.Base = nil
	}
	t.Chains = append(t.Chains, c)
	if a.Number(nftaChainFlags)&nftChainBinding != 0 {
		if t.boundChains == nil {
			t.boundChains = map[string]bool{}
		}
		t.boundChains[c.Name] = true
	}
}

// decodeChain decodes a chain without its rules.
func decodeChain(a attributes) rules.Chain {
	c := rules.Chain{Name: a.Text(unix.NFTA_CHAIN_NAME)}
	hook := attributes(a.Get(unix.NFTA_CHAIN_HOOK))
	if hook == nil {
		return c
	}
	c.Base = &rules.Base{
		Priority: int(int32(hook.Number(unix.NFTA_HOOK_PRIORITY))),
		Drop:     a.Number(unix.NFTA_CHAIN_POLICY) == 0,
	}
	if number := hook.Number(unix.NFTA_HOOK_HOOKNUM); number <= uint32(rules.Ingress) {
		c.Base.Hook = rules.Hook(number)
	}
	for _, t := range []rules.ChainType{rules.Filter, rules.NAT, rules.Route} {
		if t.String() == a.Text(unix.NFTA_CHAIN_TYPE) {
			c.Base.Type = t
		}
	}
	return c
}
