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

// ourFamily is the family of the table that Sluice owns, rules.TableName.
const ourFamily = rules.Inet

// Read returns our table and our routing as the kernel has them: without tables if ours does not
// exist. The tables are of one moment, also while others write. What the model has no word for is
// [rules.Unknown].
func Read(ns *netns.NS) (rules.Ruleset, error) {
	r, err := ReadSince(ns, 0, rules.Routing{})
	return r.Ruleset, err
}

// A Reading is what a namespace has of ours.
type Reading struct {
	rules.Ruleset
	// Generation is the number of the tables' state; 0 if it is not known.
	Generation uint32
	// Elsewhere are the chains that [ReadAllTables] has found beside those of Ruleset, or that it
	// cannot say all about.
	Elsewhere []HookedChain
	// in is the namespace, and found are its tables, with what else a plan needs to know of them.
	in    netns.ID
	found []foundTable
}

// ReadSince is [Read] for those who have read before, at a generation of this namespace's
// nf_tables, of which every change has a number of its own. If it is that of now still, the tables
// are left out: they are the same. The routing is the one that was read before, if a quick look
// shows that, and is read otherwise.
func ReadSince(ns *netns.NS, generation uint32, routing rules.Routing) (Reading, error) {
	again := func() (rules.Routing, error) {
		// A quick look does not see what others have in the tables of policy routes.
		if generation != 0 && len(routing.Policies) == 0 && route.Holds(routing) {
			return routing, nil
		}
		return route.Read(nil)
	}
	return read(ns, again, func(c *conn) (snapshot, error) {
		if generation != 0 {
			if same, err := c.isGeneration(generation); same || err != nil {
				return snapshot{generation: generation}, err
			}
		}
		ours, err := c.findOurs()
		if err != nil {
			return snapshot{}, err
		}
		return c.readOurs(ours, newExpectation(nil))
	})
}

// ReadAll returns every table of the families ip, ip6 and inet, of every owner, and our routing. A
// verdict map is several rules, all with the handle of the one. The table made last comes first: so
// the kernel runs chains of equal priority unless somebody has added one to an older table since
// (nf_hook_entries_grow in net/netfilter/core.c), and [rules.Ruleset.BaseChains] with it; of those
// of one table the order is certain.
func ReadAll(ns *netns.NS) (rules.Ruleset, error) {
	r, err := ReadAllTables(ns)
	return r.Ruleset, err
}

// ReadAllTables is [ReadAll] that also names the base chains with rules that are not among those of
// the ruleset, and those at devices, which are.
func ReadAllTables(ns *netns.NS) (Reading, error) {
	routing := func() (rules.Routing, error) { return route.Read(nil) }
	var others elsewhere
	r, err := read(ns, routing, func(c *conn) (snapshot, error) {
		return c.consistent(func() ([]foundTable, bool, error) {
			others = elsewhere{}
			tables, interrupted, err := c.listTables(&others)
			if err != nil || interrupted {
				return nil, interrupted, err
			}
			slices.Reverse(tables)
			for i := range tables {
				tables[i].splits = true
			}
			return c.readTables(tables, newExpectation(nil), &others)
		})
	})
	orderChains(&r.Ruleset)
	r.Elsewhere = others.chains
	return r, err
}

// read reads tables and routing in a namespace.
func read(
	ns *netns.NS, readRouting func() (rules.Routing, error), readTables func(*conn) (snapshot, error),
) (r Reading, err error) {
	err = inside(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		s, err := readTables(c)
		if err != nil {
			return err
		}
		r.Generation, r.in, r.found = s.generation, ns.ID(), s.tables
		for _, t := range s.tables {
			r.Tables = append(r.Tables, t.Table)
		}
		r.Routing, err = readRouting()
		return err
	})
	return r, err
}

// A snapshot is the tables at one generation.
type snapshot struct {
	generation uint32
	tables     []foundTable
}

// readOurs reads our table, which has been found, if it still is there.
func (c *conn) readOurs(found *foundTable, expected *expectation) (snapshot, error) {
	if found == nil {
		return snapshot{}, nil
	}
	return c.consistent(func() (tables []foundTable, interrupted bool, err error) {
		if found == nil {
			if found, err = c.findOurs(); found == nil {
				return nil, false, err
			}
		}
		ours := *found
		found = nil // a second reading may find another
		tables, interrupted, err = c.readTables([]foundTable{ours}, expected, nil)
		if errors.Is(err, unix.ENOENT) || err == nil && len(tables[0].Chains) == 0 {
			// Either it has gone, perhaps before this reading began, or somebody has made it empty.
			if again, findErr := c.findOurs(); again == nil {
				return nil, interrupted, findErr
			}
		}
		return tables, interrupted, err
	})
}

// maxReads bounds how often a reading is repeated because somebody wrote meanwhile. A reading takes
// a fraction of a millisecond, unless a process of the pod has made ten thousands of rules: then
// maxReadTime bounds it.
const (
	maxReads    = 1000
	maxReadTime = 3 * time.Second
)

// maxReadSize bounds what is read, and so the memory for it: rules have some 250 bytes each,
// prefixes in sets 40. Whoever may change rules in a pod could make its reader large otherwise.
const maxReadSize = 64 << 20

// errTooLong reports that there is more.
var errTooLong = errors.New("the nftables rules are more than can be read: their owner has made hundreds of thousands of them")

// errBusy reports that the ruleset kept changing.
var errBusy = errors.New("the nftables ruleset changed during each of many readings: another process writes without pause")

// consistent repeats a reading until nobody has written during it. A dump of several answers is not
// atomic in the kernel, and the number of a new generation does not change at the same instant as
// what dumps show. Hence the wait, before and after, until no transaction is under way.
func (c *conn) consistent(read func() (tables []foundTable, interrupted bool, err error)) (snapshot, error) {
	// In a pod's namespace half of the number is mostly all of it, which saves a question.
	generation := uint32(c.lastGeneration)
	begin := time.Now()
	for reads := 0; reads < maxReads && time.Since(begin) < maxReadTime; reads++ {
		if generation == 0 {
			var err error
			if generation, err = c.generation(); err != nil {
				return snapshot{}, err
			}
		}
		now, err := c.isGeneration(generation)
		if err != nil {
			return snapshot{}, err
		}
		if !now {
			generation = 0
			continue
		}
		tables, interrupted, err := read()
		// A set that disappears between two requests is a change like any other.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return snapshot{}, err
		}
		still, genErr := c.isGeneration(generation)
		if genErr != nil {
			return snapshot{}, genErr
		}
		if still && !interrupted {
			return snapshot{generation, tables}, err
		}
		generation = 0
	}
	return snapshot{}, errBusy
}

// listTables returns the names of all tables of the families that we know, and gives all tables to
// others unless that is nil.
func (c *conn) listTables(others *elsewhere) (tables []foundTable, interrupted bool, err error) {
	interrupted, err = c.dump(unix.NFT_MSG_GETTABLE, rules.Inet, nil, func(family uint8, a attributes) {
		if others != nil {
			others.addTable(family, a)
		}
		if f, ok := familyOf(family); ok {
			tables = append(tables, decodeTable(f, a))
		}
	})
	return tables, interrupted, err
}

// dump asks for a list and gives the family and attributes of each entry.
func (c *conn) dump(msg int, family rules.Family, attrs func(*messages), do func(family uint8, a attributes)) (bool, error) {
	interrupted, err := c.request(msg, unix.NLM_F_DUMP, family, attrs, do)
	if err != nil {
		err = explainRead("list "+dumpNames[msg], err)
	}
	return interrupted, err
}

var dumpNames = [...]string{
	unix.NFT_MSG_GETTABLE: "tables", unix.NFT_MSG_GETCHAIN: "chains", unix.NFT_MSG_GETRULE: "rules",
	unix.NFT_MSG_GETSET: "sets", unix.NFT_MSG_GETSETELEM: "elements",
}

// readTables fills the tables with their chains and rules. It gives the chains of all tables to
// others unless that is nil.
func (c *conn) readTables(tables []foundTable, expected *expectation, others *elsewhere) (_ []foundTable, interrupted bool, err error) {
	var faults []error
	expected.begin()
	room := cmp.Or(c.most, maxReadSize)
	expansion := maxExpansion
	list := func(msg int, family rules.Family, attrs func(*messages), do func(uint8, attributes)) {
		if room < 0 {
			return
		}
		again, err := c.dump(msg, family, attrs, func(family uint8, a attributes) {
			if room -= len(a); room >= 0 {
				do(family, a)
			}
		})
		interrupted = interrupted || again
		faults = append(faults, err)
		if room < 0 {
			faults = append(faults, errTooLong)
		}
	}
	find := func(family uint8, name string) *foundTable {
		f, known := familyOf(family)
		i := slices.IndexFunc(tables, func(t foundTable) bool { return known && t.Family == f && t.Name == name })
		if i < 0 {
			return nil
		}
		return &tables[i]
	}

	list(unix.NFT_MSG_GETCHAIN, rules.Inet, nil, func(family uint8, a attributes) {
		if others != nil {
			others.addChain(family, a)
		}
		if t := find(family, a.Text(unix.NFTA_CHAIN_TABLE)); t != nil {
			t.addChain(a)
		}
	})
	for i := range tables {
		t := &tables[i]
		ofTable := func(attr uint16) func(*messages) {
			return func(m *messages) { m.text(attr, t.Name) }
		}
		sets := setDecoder{}
		t.elements = map[string]int{}
		var names []string
		list(unix.NFT_MSG_GETSET, t.Family, ofTable(unix.NFTA_SET_TABLE), func(_ uint8, a attributes) {
			name := a.Text(unix.NFTA_SET_NAME)
			sets[name] = decodeSet(a)
			sets[name].table = t.Family.String() + " " + t.Name
			names = append(names, name)
			if !sets[name].anonymous {
				t.namedSets = append(t.namedSets, name)
			}
		})
		for _, name := range names {
			list(unix.NFT_MSG_GETSETELEM, t.Family, func(m *messages) {
				m.text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
				m.text(unix.NFTA_SET_ELEM_LIST_SET, name)
			}, func(_ uint8, a attributes) { sets[name].addElements(a.Get(unix.NFTA_SET_ELEM_LIST_ELEMENTS)) })
			t.elements[name] = sets[name].size()
		}
		t.UnusedSets = slices.Clone(t.namedSets) // so far
		var chain *rules.Chain                   // of the rule before, mostly
		var raw []rawRule
		list(unix.NFT_MSG_GETRULE, t.Family, ofTable(unix.NFTA_RULE_TABLE), func(_ uint8, a attributes) {
			if chain == nil || !a.HasText(unix.NFTA_RULE_CHAIN, chain.Name) {
				chain = t.Chain(a.Text(unix.NFTA_RULE_CHAIN))
			}
			if chain == nil || !a.HasText(unix.NFTA_RULE_TABLE, t.Name) {
				return
			}
			t.used(a.Get(unix.NFTA_RULE_EXPRESSIONS))
			if t.splits {
				raw = append(raw, rawRule{chain, slices.Clone(a)})
				return
			}
			r, known := expected.rule(t, chain, sets, a)
			if !known {
				r = decodeRule(t.Family, sets, a)
			}
			chain.Rules = append(chain.Rules, r)
		})
		decodeRaw(t.Family, sets, raw, &expansion)
	}
	return tables, interrupted, errors.Join(faults...)
}

// A rawRule is a rule before it is decoded.
type rawRule struct {
	chain *rules.Chain
	attrs attributes
}

// decodeRaw decodes rules and adds them to their chains. All are looked at before: one may change a
// set that another looks something up in.
func decodeRaw(family rules.Family, sets setDecoder, raw []rawRule, room *int) {
	for _, r := range raw {
		attributes(r.attrs.Get(unix.NFTA_RULE_EXPRESSIONS)).Each(func(_ uint16, value []byte) {
			e := attributes(value)
			if !e.HasText(unix.NFTA_EXPR_NAME, "dynset") {
				return
			}
			if s := sets[attributes(e.Get(unix.NFTA_EXPR_DATA)).Text(unix.NFTA_DYNSET_SET_NAME)]; s != nil {
				s.changes = true
			}
		})
	}
	for _, r := range raw {
		r.chain.Rules = append(r.chain.Rules, decodeRules(room, family, sets, r.attrs)...)
	}
}

// familyOf is the family of a kernel's number, if it is one that we know.
func familyOf(nfproto uint8) (rules.Family, bool) {
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
