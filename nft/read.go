package nft

import (
	"cmp"
	"errors"
	"slices"
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
	// Generation is the generation id of the tables, 0 if unknown.
	Generation uint32
	// UnmodeledChains contains the base chains that [ReadAllTables] has found and that Ruleset
	// cannot represent completely.
	UnmodeledChains []HookedChain
	// netns is the namespace, and found contains its tables with the additional data that a plan
	// needs.
	netns netns.ID
	found []foundTable
}

// ReadSince is like [Read], but does not repeat an earlier read of the namespace. generation is
// [Snapshot.Generation] of the earlier read, or 0. Every change of nf_tables increments the
// generation. If the generation has not changed, the tables are unchanged, and ReadSince omits
// them. It returns the given routing if a fast check confirms that the routing has not changed, and
// reads the routing otherwise.
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

// ReadAll returns all tables of the families ip, ip6 and inet, and the routing of Sluice. A rule
// with a verdict map becomes several rules with the same handle. Tables are in reverse order of
// their creation, like in [rules.Ruleset.BaseChains]. This is the order in which the kernel calls
// their chains of equal priority, unless a chain was added to an older table later
// (nf_hook_entries_grow in net/netfilter/core.c). The order of the chains of one table is always
// correct.
func ReadAll(ns *netns.NS) (rules.Ruleset, error) {
	r, err := ReadAllTables(ns)
	return r.Ruleset, err
}

// ReadAllTables is like [ReadAll], but also returns the base chains of other families and the base
// chains that are attached to devices, in [Snapshot.UnmodeledChains].
func ReadAllTables(ns *netns.NS) (Snapshot, error) {
	routing := func() (rules.Routing, error) { return route.Read(nil) }
	var others unmodeledChains
	r, err := read(ns, routing, func(c *conn) (tableSnapshot, error) {
		return c.readConsistently(func() ([]foundTable, bool, error) {
			others = unmodeledChains{}
			tables, interrupted, err := c.listTables(&others)
			if err != nil || interrupted {
				return nil, interrupted, err
			}
			slices.Reverse(tables)
			for i := range tables {
				tables[i].splitsRules = true
			}
			return c.readTables(tables, newExpectation(nil), &others)
		})
	})
	orderChains(&r.Ruleset)
	r.UnmodeledChains = others.chains
	return r, err
}

// read reads tables and routing in a namespace.
func read(
	ns *netns.NS, readRouting func() (rules.Routing, error),
	readTables func(*conn) (tableSnapshot, error),
) (r Snapshot, err error) {
	err = ns.DoNamed(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		c.indexScope = ns.ID()
		s, err := readTables(c)
		if err != nil {
			return err
		}
		r.Generation, r.netns, r.found = s.generation, ns.ID(), s.tables
		for _, t := range s.tables {
			r.Tables = append(r.Tables, t.Table)
		}
		r.Routing, err = readRouting()
		return err
	})
	return r, err
}

// A tableSnapshot contains tables at one generation.
type tableSnapshot struct {
	generation uint32
	tables     []foundTable
}

// readSluiceTable reads the table that findSluiceTable has returned, if it still exists.
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

// maxReadSize bounds the bytes that a read returns, and thereby its memory. A rule takes about 250
// bytes, and a prefix in a set takes 40. Without a bound, a process of the pod could exhaust the
// memory of the reader.
const maxReadSize = 64 << 20

// errTooLong is the error if maxReadSize is exceeded.
var errTooLong = errors.New("the nftables rules exceed the limit of 64 MiB")

// errBusy is the error if the ruleset changes during every attempt to read it.
var errBusy = errors.New("the nftables ruleset changed during every attempt to read it:" +
	" another process changes it continuously")

// readConsistently repeats a read until there is no concurrent change, and returns its result.
// Dumps are not atomic in the kernel, and the generation does not change atomically with the
// objects that dumps return. Therefore it waits before and after the read until no transaction is
// in progress.
func (c *conn) readConsistently(
	read func() (tables []foundTable, interrupted bool, err error),
) (tableSnapshot, error) {
	// In a pod's namespace the generation is usually less than 65536. The last answer contains its
	// lower half, which saves a request for the generation.
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
		// ENOENT: a set was deleted between two requests, which is a concurrent change.
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

// listTables returns all tables of the families that the model supports, without their chains. It
// adds the tables of all families to others, which may be nil.
func (c *conn) listTables(
	others *unmodeledChains,
) (tables []foundTable, interrupted bool, err error) {
	addTable := func(family uint8, a attributes) {
		if others != nil {
			others.addTable(family, a)
		}
		if f, ok := decodeFamily(family); ok {
			tables = append(tables, decodeTable(f, a))
		}
	}
	interrupted, err = c.dump(unix.NFT_MSG_GETTABLE, rules.Inet, nil, addTable)
	return tables, interrupted, err
}

// dump requests a list and calls visit with the family and attributes of each object.
func (c *conn) dump(
	msg int, family rules.Family, attrs func(*messages), visit func(family uint8, a attributes),
) (interrupted bool, err error) {
	interrupted, err = c.request(msg, unix.NLM_F_DUMP, family, attrs, visit)
	if err != nil {
		err = explainRead("list "+dumpNames[msg], err)
	}
	return interrupted, err
}

var dumpNames = [...]string{
	unix.NFT_MSG_GETTABLE: "tables", unix.NFT_MSG_GETCHAIN: "chains", unix.NFT_MSG_GETRULE: "rules",
	unix.NFT_MSG_GETSET: "sets", unix.NFT_MSG_GETSETELEM: "elements",
}

// readTables reads the chains and rules of the tables. It adds the chains of all tables to others,
// which may be nil.
func (c *conn) readTables(
	tables []foundTable, expected *expectation, others *unmodeledChains,
) (_ []foundTable, interrupted bool, err error) {
	expected.reset()
	r := tableReader{
		conn: c, tables: tables, expected: expected, remaining: cmp.Or(c.maxSize, maxReadSize),
		budget: maxExpansion,
	}
	r.readChains(others)
	for i := range tables {
		r.readRules(&tables[i], r.readSets(&tables[i]))
	}
	return tables, r.interrupted, errors.Join(r.errs...)
}

// A tableReader reads the chains, sets and rules of tables.
type tableReader struct {
	conn        *conn
	tables      []foundTable
	expected    *expectation
	remaining   int // bytes that may still be read; see maxReadSize
	budget      int // see maxExpansion
	interrupted bool
	errs        []error
}

// dump calls visit with the family and attributes of each object of a list, until the size of the
// objects exceeds the limit.
func (r *tableReader) dump(
	msg int, family rules.Family, attrs func(*messages), visit func(family uint8, a attributes),
) {
	if r.remaining < 0 {
		return
	}
	interrupted, err := r.conn.dump(msg, family, attrs, func(family uint8, a attributes) {
		if r.remaining -= len(a); r.remaining >= 0 {
			visit(family, a)
		}
	})
	r.interrupted = r.interrupted || interrupted
	r.errs = append(r.errs, err)
	if r.remaining < 0 {
		r.errs = append(r.errs, errTooLong)
	}
}

// find returns the table with the kernel's number of the family and the name, or nil.
func (r *tableReader) find(family uint8, name string) *foundTable {
	f, known := decodeFamily(family)
	i := slices.IndexFunc(r.tables, func(t foundTable) bool {
		return known && t.Family == f && t.Name == name
	})
	if i < 0 {
		return nil
	}
	return &r.tables[i]
}

// readChains adds the chains of all tables, without their rules.
func (r *tableReader) readChains(others *unmodeledChains) {
	r.dump(unix.NFT_MSG_GETCHAIN, rules.Inet, nil, func(family uint8, a attributes) {
		if others != nil {
			others.addChain(family, a)
		}
		if t := r.find(family, a.Text(unix.NFTA_CHAIN_TABLE)); t != nil {
			t.addChain(a)
		}
	})
}

// addTableName returns a function that adds an attribute with the name of the table.
func (t *foundTable) addTableName(attr uint16) func(*messages) {
	return func(m *messages) { m.addText(attr, t.Name) }
}

// readSets returns the sets of a table. It records their names and numbers of elements in the
// table.
func (r *tableReader) readSets(t *foundTable) decodedSets {
	sets := decodedSets{}
	t.elements = map[string]int{}
	var names []string
	r.dump(unix.NFT_MSG_GETSET, t.Family, t.addTableName(unix.NFTA_SET_TABLE),
		func(_ uint8, a attributes) {
			name := a.Text(unix.NFTA_SET_NAME)
			sets[name] = decodeSet(a)
			sets[name].table = t.Family.String() + " " + t.Name
			names = append(names, name)
			if !sets[name].anonymous {
				t.namedSets = append(t.namedSets, name)
			}
		})
	for _, name := range names {
		r.dump(unix.NFT_MSG_GETSETELEM, t.Family, func(m *messages) {
			m.addText(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			m.addText(unix.NFTA_SET_ELEM_LIST_SET, name)
		}, func(_ uint8, a attributes) {
			sets[name].addElements(a.Get(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		})
		t.elements[name] = sets[name].size()
	}
	return sets
}

// readRules adds the rules to the chains of a table.
func (r *tableReader) readRules(t *foundTable, sets decodedSets) {
	t.UnusedSets = slices.Clone(t.namedSets) // recordUsedSets removes the used sets
	var chain *rules.Chain                   // of the previous rule
	var raw []rawRule
	r.dump(unix.NFT_MSG_GETRULE, t.Family, t.addTableName(unix.NFTA_RULE_TABLE),
		func(_ uint8, a attributes) {
			if chain == nil || !a.HasText(unix.NFTA_RULE_CHAIN, chain.Name) {
				chain = t.Chain(a.Text(unix.NFTA_RULE_CHAIN))
			}
			if chain == nil || !a.HasText(unix.NFTA_RULE_TABLE, t.Name) {
				return
			}
			t.recordUsedSets(a.Get(unix.NFTA_RULE_EXPRESSIONS))
			if t.splitsRules {
				raw = append(raw, rawRule{
					chain: chain, attrs: slices.Clone(a), indexScope: r.conn.indexScope,
				})
				return
			}
			rule, isExpected := r.expected.recognize(t, chain, sets, a)
			if !isExpected {
				rule = decodeRule(t.Family, sets, a)
			}
			chain.Rules = append(chain.Rules, rule)
		})
	decodeRaw(t.Family, sets, raw, &r.budget)
}

// A rawRule is a rule before it is decoded.
type rawRule struct {
	chain *rules.Chain
	attrs attributes
	// indexScope is [ruleDecoder.indexScope].
	indexScope netns.ID
	// The other fields are for a rule that was not read from the kernel. unknowns contains the
	// Unknowns for its expressions with the name unknownExpression, in the same order. line and
	// incomplete are [Rule.Line] and [Rule.Incomplete].
	unknowns   []rules.Unknown
	line       rules.Line
	incomplete bool
}

// decodeRaw decodes rules and adds them to their chains. It first marks the sets that the rules
// change, because earlier rules may look up values in them. budget is as in decodeRules.
func decodeRaw(family rules.Family, sets decodedSets, raw []rawRule, budget *int) {
	for _, r := range raw {
		attributes(r.attrs.Get(unix.NFTA_RULE_EXPRESSIONS)).Each(func(_ uint16, value []byte) {
			e := attributes(value)
			if !e.HasText(unix.NFTA_EXPR_NAME, "dynset") {
				return
			}
			name := attributes(e.Get(unix.NFTA_EXPR_DATA)).Text(unix.NFTA_DYNSET_SET_NAME)
			if s := sets[name]; s != nil {
				s.isDynamic = true
			}
		})
	}
	for _, r := range raw {
		r.chain.Rules = append(r.chain.Rules, decodeRules(budget, family, sets, r)...)
	}
}

// decodeFamily returns the family with the kernel's number, and whether the model supports it.
func decodeFamily(nfproto uint8) (rules.Family, bool) {
	switch nfproto {
	case unix.NFPROTO_INET:
		return rules.Inet, true
	case unix.NFPROTO_IPV4:
		return rules.IPv4, true
	case unix.NFPROTO_IPV6:
		return rules.IPv6, true
	}
	return rules.Inet, false
}
