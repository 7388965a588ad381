package nft

import (
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Prepared is a ruleset that is encoded once and applied to many namespaces, such as the namespaces
// of all pods with equal parameters. [Prepare] returns a Prepared. A Prepared is safe for
// concurrent use.
type Prepared struct {
	ruleset rules.Ruleset
	// creation returns the transaction of a first installation. The first call encodes it.
	creation func() (*Transaction, error)
}

// Prepare returns the ruleset for [Prepared.Apply]. The ruleset must have exactly the table that
// [rules.Compile] creates, and must not be changed afterwards.
func Prepare(rs rules.Ruleset) (*Prepared, error) {
	if len(rs.Tables) != 1 || rs.Tables[0].Family != tableFamily ||
		rs.Tables[0].Name != rules.TableName {
		return nil, fmt.Errorf("the ruleset must have exactly one table, %s %s",
			tableFamily, rules.TableName)
	}
	return &Prepared{rs, sync.OnceValues(func() (*Transaction, error) {
		return Encode(rs)
	})}, nil
}

// ApplyOptions configure [Prepared.Apply]. The zero value has the behavior of [Apply].
type ApplyOptions struct {
	// Since is an earlier snapshot of the namespace. If no rule has changed since then, Apply does
	// not read the rules again. Otherwise the kernel rejects the transaction and Apply reads all
	// rules. [Result.EstablishedPackets] may be from the snapshot. A snapshot of another namespace
	// is ignored. Never pass a snapshot of a destroyed namespace, because the kernel may have
	// reused its inode number.
	Since Snapshot
	// BeforeChange, if not nil, is called in the namespace before the first change. It is not
	// called if the namespace already has the ruleset and its routes. No change follows the call if
	// another process has made the same change in the meantime. exclusive reports whether Apply has
	// acquired the lock of the namespace. If BeforeChange returns an error, Apply returns the error
	// and changes nothing.
	BeforeChange func(exclusive bool) error
}

// Apply is like [Apply] with the prepared ruleset.
func (p *Prepared) Apply(ns *netns.NS, o ApplyOptions) (result Result, err error) {
	if ns != nil {
		err = ns.DoNamed(func() (err error) {
			result, err = p.Apply(nil, o)
			return err
		})
		return result, err
	}
	growStack(false)
	c, err := dial()
	if err != nil {
		return Result{}, err
	}
	a := newApplier(c, p, o)
	defer a.close()
	err = a.run()
	return a.resultAfter(err), err
}
