package nft

import (
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Prepared is a ruleset that many namespaces get, such as that of all pods with equal parameters: it is encoded once. It is safe for
// concurrent use. Use [Prepare].
type Prepared struct {
	ruleset rules.Ruleset
	// creation returns the transaction of a first installation, which is made when it is first asked for.
	creation func() (*Transaction, error)
}

// Prepare returns the ruleset for [Prepared.Apply]. It must have one table, the one that [rules.Compile] makes, and must not be changed
// afterwards.
func Prepare(rs rules.Ruleset) (*Prepared, error) {
	if len(rs.Tables) != 1 || rs.Tables[0].Family != ourFamily || rs.Tables[0].Name != rules.TableName {
		return nil, fmt.Errorf("want the one table %s %s", ourFamily, rules.TableName)
	}
	return &Prepared{rs, sync.OnceValues(func() (*Transaction, error) { return encode(rs, nil, 0) })}, nil
}

// Apply is [Apply] with the ruleset.
func (p *Prepared) Apply(ns *netns.NS) (Result, error) { return p.applyAfter(ns, Reading{}) }

// applyAfter is [ApplyAfter] with the ruleset.
func (p *Prepared) applyAfter(ns *netns.NS, last Reading) (Result, error) {
	var result Result
	err := inside(ns, func() (err error) {
		result, err = apply(p, last)
		return err
	})
	return result, err
}
