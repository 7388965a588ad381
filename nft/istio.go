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

// istioTables are the tables that istio-nftables makes, of family inet.
var istioTables = []string{"istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"}

// iptablesTables are the tables that iptables-nft makes, of families ip and ip6, as far as
// istio-iptables writes to them.
var iptablesTables = []string{"filter", "nat", "mangle", "raw"}

// RemoveIstio deletes what Istio's own programs left in the namespace (nil: the current one), in
// one transaction: the tables of istio-nftables, and what istio-iptables wrote with iptables-nft;
// package [istio] says how that is told from others' rules, which keep their order and counters.
// Tables and built-in chains of iptables stay, also empty. iptables-legacy's tables are not seen
// here, and routes are those of [github.com/sluice-mesh/sluice/nft/route.PruneIstio].
//
// It returns what it deleted, a line each; nothing, and nothing is written, if there is nothing of
// Istio's. When it returns an error nothing has changed.
func RemoveIstio(ns *netns.NS) ([]string, error) {
	var removed []string
	err := inside(ns, func() (err error) {
		removed, err = removeIstio()
		return err
	})
	return removed, err
}

// FindIstio returns what RemoveIstio would delete, a line each, and writes nothing.
func FindIstio(ns *netns.NS) ([]string, error) {
	var found istioRemains
	err := inside(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		found, err = c.findIstio()
		return err
	})
	if err != nil {
		return nil, err
	}
	return found.lines(), nil
}

// removeIstio is RemoveIstio in the namespace of the thread.
func removeIstio() ([]string, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.close()
	var lines []string // of a transaction of which the answer was lost
	for range maxAttempts {
		found, err := c.findIstio()
		if err != nil {
			return nil, err
		}
		if found.IsZero() {
			return lines, nil
		}
		if err = c.commit(found.encode()); err == nil {
			return found.lines(), nil
		}
		if !isRace(err) {
			return nil, fmt.Errorf("remove what Istio left: %w", err)
		}
		lines = nil
		if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
			lines = found.lines()
		}
	}
	return nil, fmt.Errorf("remove what Istio left: given up after %d attempts, each overtaken by another process", maxAttempts)
}

// istioRemains is what Istio left at one generation of the ruleset.
type istioRemains struct {
	generation uint32
	whole      []rules.Table // of istio-nftables, without their chains
	shared     []sharedTable
}

// A sharedTable is one in which others' rules stay.
type sharedTable struct {
	table   rules.Table
	remains istio.Remains
}

// IsZero reports whether there is nothing.
func (f istioRemains) IsZero() bool { return len(f.whole) == 0 && len(f.shared) == 0 }

// findIstio reads the tables that Istio may have written to, and recognises what is Istio's.
func (c *conn) findIstio() (istioRemains, error) {
	// That there is none of these tables, as in most pods, takes one question.
	if tables, interrupted, err := c.listIstioTables(); err != nil || !interrupted && len(tables) == 0 {
		return istioRemains{}, err
	}
	found, err := c.consistent(func() ([]foundTable, bool, error) {
		tables, interrupted, err := c.listIstioTables()
		if err != nil || interrupted {
			return nil, interrupted, err
		}
		return c.readTables(tables, newExpectation(nil), nil)
	})
	remains := istioRemains{generation: found.generation}
	for _, t := range found.tables {
		if t.Family == rules.Inet {
			remains.whole = append(remains.whole, t.Table)
			continue
		}
		shared := sharedTable{table: t.Table}
		if shared.remains = istio.Find(&shared.table); !shared.remains.IsZero() {
			remains.shared = append(remains.shared, shared)
		}
	}
	return remains, err
}

// listIstioTables returns the names of the tables that Istio may have written to.
func (c *conn) listIstioTables() (tables []foundTable, interrupted bool, err error) {
	tables, interrupted, err = c.listTables(nil)
	return slices.DeleteFunc(tables, func(t foundTable) bool {
		if t.Family == rules.Inet {
			return !slices.Contains(istioTables, t.Name)
		}
		return !slices.Contains(iptablesTables, t.Name)
	}), interrupted, err
}

// lines names what is deleted.
func (f istioRemains) lines() []string {
	var lines []string
	for i := range f.whole {
		lines = append(lines, fmt.Sprintf("table %s %s", f.whole[i].Family, f.whole[i].Name))
	}
	for _, s := range f.shared {
		lines = append(lines, s.remains.Lines()...)
	}
	return lines
}

// encode writes the transaction. A chain can go only when no rule jumps to it any more, so all
// rules go before.
func (f istioRemains) encode() *Transaction {
	e := newEncoder(f.generation)
	e.deletes = true
	for i := range f.whole {
		e.deleteTable(&f.whole[i])
	}
	for i := range f.shared {
		t := &f.shared[i].table
		e.table = t
		for _, p := range f.shared[i].remains.Rules {
			c := &t.Chains[p.Chain]
			e.deleteRule(c, &c.Rules[p.Rule])
		}
		for _, n := range f.shared[i].remains.Chains {
			if c := &t.Chains[n]; len(c.Rules) > 0 {
				e.deleteRule(c, nil)
			}
		}
		for _, n := range f.shared[i].remains.Chains {
			e.deleteChain(&t.Chains[n])
		}
	}
	return e.transaction()
}
