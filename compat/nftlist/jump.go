package nftlist

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// maxJumps is the maximum depth of jumps in the kernel (NFT_JUMP_STACK_SIZE).
const maxJumps = 16

// checkJumps returns an error if a rule jumps to a missing chain, or if jumps from a base chain form
// a cycle or are deeper than the kernel allows. The kernel does not check the jumps of other chains
// (nft_table_validate in net/netfilter/nf_tables_api.c).
func checkJumps(t *rules.Table) error {
	depths := map[string]int{} // the depth of jumps from each visited chain, by name
	chains := make(map[string]*rules.Chain, len(t.Chains))
	for i := range t.Chains {
		chains[t.Chains[i].Name] = &t.Chains[i]
	}
	var visit func(c *rules.Chain, depth int) (int, error)
	visit = func(c *rules.Chain, depth int) (int, error) {
		if known, visited := depths[c.Name]; visited {
			return known, nil
		}
		if depth > maxJumps {
			return 0, fmt.Errorf("chain %s %s %s: the jumps are a loop, or deeper than %d",
				t.Family, t.Name, c.Name, maxJumps)
		}
		deepest := 0
		for i := range c.Rules {
			for _, a := range c.Rules[i].Actions {
				jump, ok := a.(rules.Jump)
				if !ok {
					continue
				}
				below, err := visit(chains[jump.Chain], depth+1)
				if err != nil {
					return 0, err
				}
				deepest = max(deepest, below+1)
			}
		}
		if deepest > maxJumps {
			return 0, fmt.Errorf("chain %s %s %s: the jumps are deeper than %d", t.Family, t.Name,
				c.Name, maxJumps)
		}
		depths[c.Name] = deepest
		return deepest, nil
	}
	if err := checkTargets(t, chains); err != nil {
		return err
	}
	for i := range t.Chains {
		if t.Chains[i].Base == nil {
			continue
		}
		if _, err := visit(&t.Chains[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// checkTargets returns an error if a rule jumps to a missing chain. chains contains the chains of
// the table by name.
func checkTargets(t *rules.Table, chains map[string]*rules.Chain) error {
	for i := range t.Chains {
		for j := range t.Chains[i].Rules {
			for _, a := range t.Chains[i].Rules[j].Actions {
				if jump, ok := a.(rules.Jump); ok && chains[jump.Chain] == nil {
					return fmt.Errorf("chain %s %s %s jumps to %q, which is not listed", t.Family,
						t.Name, t.Chains[i].Name, jump.Chain)
				}
			}
		}
	}
	return nil
}
