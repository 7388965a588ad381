package nft

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// tableFamily is the family of the Sluice table, whose name is rules.TableName.
const tableFamily = rules.Inet

// Read returns the Sluice table and the routing of Sluice in the namespace. The result has no table
// if the table does not exist. The table is consistent, even if other processes change it during
// the read. Expressions that the model cannot represent become [rules.Unknown].
func Read(ns *netns.NS) (rules.Ruleset, error) {
	r, err := ReadSince(ns, 0, rules.Routing{})
	return r.Ruleset, err
}

// A Snapshot contains the rules and the routing of a namespace at the time of a read.
type Snapshot struct {
	rules.Ruleset
	// Generation is the generation id of the tables. 0 means that it is unknown.
	Generation uint32
	// UnmodeledChains contains the base chains that [ReadAllTables] has found and that Ruleset
	// cannot represent completely.
	UnmodeledChains []UnmodeledChain
	// HasOwnedTable reports that [ReadAllTables] has found a table of any family that a process
	// owns; see [rules.Table.Owned]. The tables may then change without a new generation.
	HasOwnedTable bool
	// netns is the namespace, and found contains its tables with the additional data that a plan
	// needs.
	netns netns.ID
	found []foundTable
}

// ReadSince is like [Read], but does not read again what has not changed since an earlier read.
// generation is [Snapshot.Generation] of the earlier read, or 0 to read everything. Every
// transaction of nf_tables increments the generation. If the generation has not changed, the tables
// are unchanged, and the result has no tables. A table that a process owns ([rules.Table.Owned]) is
// deleted without a new generation: pass 0 if the earlier read has returned such a table. ReadSince
// returns the given routing of the earlier read without reading the routing again if generation is
// not 0, the routing has no policy routes, and a fast check confirms that it has not changed.
func ReadSince(ns *netns.NS, generation uint32, routing rules.Routing) (Snapshot, error) {
	readRouting := func() (rules.Routing, error) {
		// The fast check ignores foreign routes in the tables of policy routes.
		if generation != 0 && len(routing.Policies) == 0 && route.InSync(routing) {
			return routing, nil
		}
		return route.Read(nil)
	}
	return read(ns, readRouting, func(c *conn) (tableSnapshot, error) {
		if generation != 0 {
			if same, err := c.isGeneration(generation); same || err != nil {
				return tableSnapshot{generation: generation}, err
			}
		}
		table, err := c.findSluiceTable()
		if err != nil {
			return tableSnapshot{}, err
		}
		return c.readSluiceTable(table, newExpectation(nil))
	})
}

// ReadOptions are the options of [ReadAllTables].
type ReadOptions struct {
	// UntilChange requests a result that remains valid until the generation changes. All elements
	// of a set whose elements may expire are then unknown, because the kernel deletes them without
	// a new generation. By default the result contains the elements at the time of the read.
	UntilChange bool
}

// ReadAll returns all tables of the families ip, ip6 and inet, and the routing of Sluice. A rule
// whose last expression uses a map becomes several rules with the same handle. Tables are in the
// reverse order of their creation, as in [rules.Ruleset.BaseChains]. This is the order in which the
// kernel calls their chains of equal priority, unless a chain was added to an older table later
// (nf_hook_entries_grow in net/netfilter/core.c). The order of the chains of one table is always
// correct. A set whose elements expire has the elements at the time of the read.
func ReadAll(ns *netns.NS) (rules.Ruleset, error) {
	r, err := ReadAllTables(ns, ReadOptions{})
	return r.Ruleset, err
}

// ReadAllTables is like [ReadAll], but also returns the base chains of other families and the base
// chains that are attached to devices, in [Snapshot.UnmodeledChains].
func ReadAllTables(ns *netns.NS, o ReadOptions) (Snapshot, error) {
	routing := func() (rules.Routing, error) { return route.Read(nil) }
	var unmodeled unmodeledChains
	r, err := read(ns, routing, func(c *conn) (tableSnapshot, error) {
		return c.readConsistently(func() ([]foundTable, bool, error) {
			unmodeled = unmodeledChains{}
			tables, interrupted, err := c.listTables(&unmodeled)
			if err != nil || interrupted {
				return nil, interrupted, err
			}
			slices.Reverse(tables)
			for i := range tables {
				tables[i].splitsRules, tables[i].untilChange = true, o.UntilChange
			}
			return c.readTables(tables, newExpectation(nil), &unmodeled)
		})
	})
	orderChains(&r.Ruleset)
	r.UnmodeledChains, r.HasOwnedTable = unmodeled.chains, unmodeled.hasOwnedTable
	return r, err
}

// read reads tables and routing in a namespace.
func read(
	ns *netns.NS, readRouting func() (rules.Routing, error),
	readTables func(*conn) (tableSnapshot, error),
) (Snapshot, error) {
	return withSocket(ns, func(c *conn) (r Snapshot, err error) {
		c.indexScope = ns.ID()
		s, err := readTables(c)
		if err != nil {
			return r, err
		}
		r.Generation, r.netns, r.found = s.generation, ns.ID(), s.tables
		for _, t := range s.tables {
			r.Tables = append(r.Tables, t.Table)
		}
		r.Routing, err = readRouting()
		return r, err
	})
}

// A tableSnapshot contains tables at one generation.
type tableSnapshot struct {
	generation uint32
	tables     []foundTable
}

// readSluiceTable reads the table that findSluiceTable has returned. The result has no table if
// found is nil or the table no longer exists.
func (c *conn) readSluiceTable(found *foundTable, expected *expectation) (tableSnapshot, error) {
	if found == nil {
		return tableSnapshot{}, nil
	}
	return c.readConsistently(func() (tables []foundTable, interrupted bool, err error) {
		if found == nil {
			if found, err = c.findSluiceTable(); found == nil {
				return nil, false, err
			}
		}
		table := *found
		found = nil // a repeated read must find the table again
		tables, interrupted, err = c.readTables([]foundTable{table}, expected, nil)
		if errors.Is(err, unix.ENOENT) || err == nil && len(tables[0].Chains) == 0 {
			// The table was deleted, possibly before this read, or another process has emptied it.
			if second, findErr := c.findSluiceTable(); second == nil {
				return nil, interrupted, findErr
			}
		}
		return tables, interrupted, err
	})
}

// maxReads and maxReadTime bound the repetitions of a read after concurrent changes. Usually a read
// takes a fraction of a millisecond, and maxReads is reached first. If a process of the pod has
// added tens of thousands of rules, a read takes longer, and maxReadTime is reached first.
const (
	maxReads    = 1000
	maxReadTime = 3 * time.Second
)

// maxReadSize bounds the bytes that a read returns, and thereby the memory that it needs. A rule
// takes about 250 bytes, and a prefix in a set takes 40. Without a bound, a process of the pod
// could exhaust the memory of the reader. TestMemoryOfTheLargestRulesets of package audit measures
// the memory.
const maxReadSize = 64 << 20

// readSize is the limit of [LimitReads], or 0.
var readSize atomic.Int64

// LimitReads limits the rules that each later read of this process returns to a number of bytes, at
// most and by default 64 MiB. It is for commands that share the memory of a container with a node
// agent: an operator's command must not exhaust the agent's memory. LimitReads is safe for
// concurrent use.
func LimitReads(bytes int64) { readSize.Store(min(bytes, maxReadSize)) }

// objectSize is an estimate of the memory of a decoded object. It counts against maxReadSize for
// each chain, rule, set and part of a set's elements, in addition to the size of its message.
// Without it, half a million short rules would need 220 MiB.
const objectSize = 192

// requestSize is counted against maxReadSize for each request of a read. Without it, a process of
// the pod that adds many empty tables or sets, each of which needs a request, could occupy the
// reader for minutes. A read has at most 16,384 requests.
const requestSize = 4 << 10

// errTooLong is wrapped by the error of a read that exceeds its limit.
var errTooLong = errors.New("each rule counts as its size plus 192 bytes")

// tooLong returns the error of a read that exceeds the limit, which is in bytes.
func tooLong(limit int) error {
	return fmt.Errorf("the nftables rules exceed the limit of %d MiB, or have too many tables or sets: %w",
		limit>>20, errTooLong)
}

// errBusy is the error of a read if the ruleset changes during every attempt.
var errBusy = errors.New("the nftables ruleset changed during every attempt to read it:" +
	" another process changes it continuously")

// readConsistently repeats a read until there is no concurrent change, and returns its result.
// Dumps are not atomic in the kernel, and the generation does not change atomically with the
// objects that dumps return. Therefore readConsistently waits before and after the read until no
// transaction is in progress.
func (c *conn) readConsistently(
	read func() (tables []foundTable, interrupted bool, err error),
) (tableSnapshot, error) {
	// Guess the generation from its lower half, which the last answer contains: in a pod's
	// namespace the generation is usually less than 65536. A correct guess saves a request.
	generation := uint32(c.lastGeneration)
	start := time.Now()
	for reads := 0; reads < maxReads && time.Since(start) < maxReadTime; reads++ {
		if generation == 0 {
			var err error
			if generation, err = c.generation(); err != nil {
				return tableSnapshot{}, err
			}
		}
		current, err := c.isGeneration(generation)
		if err != nil {
			return tableSnapshot{}, err
		}
		if !current {
			generation = 0
			continue
		}
		tables, interrupted, err := read()
		// The error ENOENT means a concurrent change: a set was deleted between two requests.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return tableSnapshot{}, err
		}
		unchanged, genErr := c.isGeneration(generation)
		if genErr != nil {
			return tableSnapshot{}, genErr
		}
		if unchanged && !interrupted {
			return tableSnapshot{generation, tables}, err
		}
		generation = 0
	}
	return tableSnapshot{}, errBusy
}
