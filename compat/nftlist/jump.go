package nftlist

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// maxJumps is the maximum number of nested jumps from a base chain, including gotos: the kernel
// rejects the chain at level NFT_JUMP_STACK_SIZE, 16, with EMLINK (nft_chain_validate in
// net/netfilter/nf_tables_api.c).
const maxJumps = 15

// checkJumps returns an error if a rule jumps to a missing chain, or if jumps from a base chain
// form a cycle or are more deeply nested than the kernel allows. The kernel does not check the
// jumps of chains that no base chain reaches (nft_table_validate).
func checkJumps(t *rules.Table) error {
	nested := map[string]int{} // number of nested jumps from each visited chain, by name
	chains := make(map[string]*rules.Chain, len(t.Chains))
	for i := range t.Chains {
		chains[t.Chains[i].Name] = &t.Chains[i]
	}
	// visit returns the number of nested jumps from a chain. level is the number of nested jumps
	// that lead to the chain.
	var visit func(c *rules.Chain, level int) (int, error)
	visit = func(c *rules.Chain, level int) (int, error) {
		if known, visited := nested[c.Name]; visited {
			return known, nil
		}
		if level > maxJumps {
			return 0, fmt.Errorf(
				"chain %s %s %s: the jumps form a loop, or more than %d are nested",
				t.Family, t.Name, c.Name, maxJumps)
		}
		deepest := 0
		for i := range c.Rules {
			for _, a := range c.Rules[i].Actions {
				jump, ok := a.(rules.Jump)
				if !ok {
					continue
				}
				below, err := visit(chains[jump.Chain], level+1)
				if err != nil {
					return 0, err
				}
				deepest = max(deepest, below+1)
			}
		}
		if level+deepest > maxJumps {
			return 0, fmt.Errorf("chain %s %s %s: more than %d jumps are nested", t.Family, t.Name,
				c.Name, maxJumps)
		}
		nested[c.Name] = deepest
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
