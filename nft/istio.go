package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// istioTables contains the inet tables of istio-nftables, and of istio-cni in ambient mode.
var istioTables = []string{
	"istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw",
	"istio-ambient-nat", "istio-ambient-mangle", "istio-ambient-raw",
}

// IsIstioTable reports whether istio-nftables, or istio-cni in ambient mode, created the table.
// [RemoveIstio] deletes such tables.
func IsIstioTable(t *rules.Table) bool {
	return t.Family == rules.Inet && slices.Contains(istioTables, t.Name)
}

// iptablesTables contains the names of the iptables-nft tables that istio-iptables adds rules to,
// in the families ip and ip6.
var iptablesTables = []string{"filter", "nat", "mangle", "raw"}

// RemoveIstio deletes the rules of Istio's programs in the namespace, in one transaction: the
// tables of istio-nftables and of istio-cni in ambient mode, and the rules and chains that
// istio-iptables added with iptables-nft. Package [istio] identifies these rules and chains.
// Foreign rules keep their order and counters. RemoveIstio keeps the tables and built-in chains of
// iptables, even if they are empty, and does not access the iptables-legacy tables.
// [github.com/sluice-mesh/sluice/nft/route.PruneIstio] removes Istio's routes. A nil namespace is
// the current one.
//
// RemoveIstio returns a line for each deleted object. If there are no objects of Istio, it writes
// nothing. If it returns an error, nothing has changed, unless the kernel's answer to the
// transaction was lost: then the objects may have been deleted.
func RemoveIstio(ns *netns.NS) ([]string, error) { return withSocket(ns, (*conn).removeIstio) }

// FindIstio returns a line for each object that RemoveIstio would delete.
func FindIstio(ns *netns.NS) ([]string, error) {
	found, err := withSocket(ns, (*conn).findIstio)
	if err != nil {
		return nil, err
	}
	return found.lines(), nil
}

// removeIstio is RemoveIstio in the namespace of the socket.
func (c *conn) removeIstio() ([]string, error) {
	var unanswered []string // the objects of the previous transaction, if its answer was lost
	for range maxAttempts {
		found, err := c.findIstio()
		if err != nil {
			return nil, err
		}
		if found.IsZero() {
			return unanswered, nil
		}
		if err = c.commit(found.encode()); err == nil {
			return found.lines(), nil
		}
		if !needsRetry(err) {
			return nil, fmt.Errorf("remove Istio's rules: %w", err)
		}
		unanswered = nil
		if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
			unanswered = found.lines()
		}
	}
	return nil, fmt.Errorf("remove Istio's rules: gave up after %d attempts because of concurrent"+
		" changes by other processes", maxAttempts)
}

// istioLeftovers contains the objects of Istio at one generation of the ruleset.
type istioLeftovers struct {
	generation uint32
	tables     []rules.Table // the tables in istioTables that exist
	shared     []sharedTable
}

// A sharedTable is an iptables-nft table with objects of Istio. It may also contain foreign rules.
type sharedTable struct {
	table     rules.Table
	leftovers istio.Leftovers
}

// IsZero reports whether there are no objects of Istio.
func (l istioLeftovers) IsZero() bool { return len(l.tables) == 0 && len(l.shared) == 0 }

// findIstio reads the tables that Istio may have changed, and identifies the objects of Istio.
func (c *conn) findIstio() (istioLeftovers, error) {
	// If none of these tables exists, as in most pods, one request is enough.
	if tables, interrupted, err := c.listIstioTables(); err != nil ||
		!interrupted && len(tables) == 0 {
		return istioLeftovers{}, err
	}
	found, err := c.readConsistently(func() ([]foundTable, bool, error) {
		tables, interrupted, err := c.listIstioTables()
		if err != nil || interrupted {
			return nil, interrupted, err
		}
		return c.readTables(tables, newExpectation(nil), nil)
	})
	leftovers := istioLeftovers{generation: found.generation}
	for _, t := range found.tables {
		if t.Family == rules.Inet {
			leftovers.tables = append(leftovers.tables, t.Table)
			continue
		}
		shared := sharedTable{table: t.Table}
		if shared.leftovers = istio.Find(&shared.table); !shared.leftovers.IsZero() {
			leftovers.shared = append(leftovers.shared, shared)
		}
	}
	return leftovers, err
}

// listIstioTables returns the tables that Istio may have changed, without their chains.
func (c *conn) listIstioTables() (tables []foundTable, interrupted bool, err error) {
	tables, interrupted, err = c.listTables(nil)
	return slices.DeleteFunc(tables, func(t foundTable) bool {
		if t.Family == rules.Inet {
			return !slices.Contains(istioTables, t.Name)
		}
		return !slices.Contains(iptablesTables, t.Name)
	}), interrupted, err
}

// lines returns a line for each object to delete.
func (l istioLeftovers) lines() []string {
	var lines []string
	for i := range l.tables {
		lines = append(lines, fmt.Sprintf("table %s %s", l.tables[i].Family, l.tables[i].Name))
	}
	for _, s := range l.shared {
		lines = append(lines, s.leftovers.Lines()...)
	}
	return lines
}

// encode returns the transaction that deletes the objects. It deletes rules before chains, because
// the kernel rejects the deletion of a chain to which a rule jumps.
func (l istioLeftovers) encode() *Transaction {
	e := newEncoder(l.generation)
	e.deletes = true
	for i := range l.tables {
		e.deleteTable(&l.tables[i])
	}
	for i := range l.shared {
		t := &l.shared[i].table
		e.table = t
		for _, p := range l.shared[i].leftovers.Rules {
			c := &t.Chains[p.Chain]
			e.deleteRule(c, &c.Rules[p.Rule])
		}
		for _, n := range l.shared[i].leftovers.Chains {
			if c := &t.Chains[n]; len(c.Rules) > 0 {
				e.deleteRule(c, nil)
			}
		}
		for _, n := range l.shared[i].leftovers.Chains {
			e.deleteChain(&t.Chains[n])
		}
	}
	return e.transaction()
}
