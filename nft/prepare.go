package nft

import (
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Prepared is a ruleset that is encoded once and applied to many namespaces, such as all pods with
// equal parameters. It is safe for concurrent use. Use [Prepare].
type Prepared struct {
	ruleset rules.Ruleset
	// creation returns the transaction of a first installation, which is made when it is first
	// asked for.
	creation func() (*Transaction, error)
}

// Prepare returns the ruleset for [Prepared.Apply]. It must have one table, the one that
// [rules.Compile] makes, and must not be changed afterwards.
func Prepare(rs rules.Ruleset) (*Prepared, error) {
	if len(rs.Tables) != 1 || rs.Tables[0].Family != ourFamily || rs.Tables[0].Name != rules.TableName {
		return nil, fmt.Errorf("want the one table %s %s", ourFamily, rules.TableName)
	}
	return &Prepared{rs, sync.OnceValues(func() (*Transaction, error) { return encode(rs, nil, 0) })}, nil
}

// ApplyOptions change how [Prepared.Apply] works. The zero value is what [Apply] does.
type ApplyOptions struct {
	// Since is an earlier reading of the namespace. While no rule has changed since, nothing is
	// read again; otherwise the kernel refuses the transaction, and everything is read. A reading
	// of another namespace is ignored. Never pass the reading of a namespace that has been
	// destroyed: its number may be another's by now. [Result.Kept] is then as of the reading.
	Since Reading
	// BeforeChange, unless nil, is called before the first change, and not if there is nothing to
	// change. It runs in the namespace; exclusive reports whether the namespace's lock keeps other
	// appliers waiting. Its error ends Apply, with nothing changed.
	BeforeChange func(exclusive bool) error
}

// Apply is [Apply] with the ruleset.
func (p *Prepared) Apply(ns *netns.NS, o ApplyOptions) (result Result, err error) {
	if ns != nil {
		err = inside(ns, func() (err error) {
			result, err = p.Apply(nil, o)
			return err
		})
		return result, err
	}
	deepen(false)
	c, err := dial()
	if err != nil {
		return Result{}, err
	}
	a := newApplier(c, p, o)
	defer a.hangUp()
	err = a.run()
	return a.outcome(err), err
}
