package nft

import (
	"cmp"
	"errors"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// listTables returns all tables of the families that the model supports, without their chains. It
// passes the tables of all families to unmodeled, which may be nil.
func (c *conn) listTables(
	unmodeled *unmodeledChains,
) (tables []foundTable, interrupted bool, err error) {
	addTable := func(family uint8, a attributes) {
		if unmodeled != nil {
			unmodeled.addTable(family, a)
		}
		if f, ok := decodeFamily(family); ok {
			tables = append(tables, decodeTable(f, a))
		}
	}
	interrupted, err = c.dump(unix.NFT_MSG_GETTABLE, rules.Inet, nil, addTable)
	return tables, interrupted, err
}

// dump requests a list and calls visit with the family and the attributes of each object. attrs is
// as in [conn.request].
func (c *conn) dump(
	msg int, family rules.Family, attrs func(*messages), visit func(family uint8, a attributes),
) (interrupted bool, err error) {
	interrupted, err = c.request(msg, unix.NLM_F_DUMP, family, attrs, visit)
	if err != nil {
		err = explainRead("list "+dumpNames[msg], err)
	}
	return interrupted, err
}

// dumpNames contains the names of the listed objects for error messages.
var dumpNames = [...]string{
	unix.NFT_MSG_GETTABLE: "tables", unix.NFT_MSG_GETCHAIN: "chains", unix.NFT_MSG_GETRULE: "rules",
	unix.NFT_MSG_GETSET: "sets", unix.NFT_MSG_GETSETELEM: "elements",
}

// readTables adds the chains and rules to the tables and returns the tables. It passes the chains
// of all families to unmodeled, which may be nil.
func (c *conn) readTables(
	tables []foundTable, expected *expectation, unmodeled *unmodeledChains,
) (_ []foundTable, interrupted bool, err error) {
	expected.reset()
	r := tableReader{
		conn: c, tables: tables, expected: expected,
		limit: cmp.Or(c.maxSize, int(readSize.Load()), maxReadSize), budget: maxExpansion,
	}
	r.remaining = r.limit
	r.readChains(unmodeled)
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
	limit       int // bytes that may be read; see maxReadSize and LimitReads
	remaining   int // bytes that may still be read; see maxReadSize, objectSize and requestSize
	budget      int // see maxExpansion
	interrupted bool
	errs        []error
	lastFound   int // index of the table that find returned last
}

// dump is like [conn.dump], but stops calling visit when the size of all objects exceeds the limit.
func (r *tableReader) dump(
	msg int, family rules.Family, attrs func(*messages), visit func(family uint8, a attributes),
) {
	if r.remaining < 0 {
		return
	}
	if r.remaining -= requestSize; r.remaining < 0 {
		r.errs = append(r.errs, tooLong(r.limit))
		return
	}
	interrupted, err := r.conn.dump(msg, family, attrs, func(family uint8, a attributes) {
		if r.remaining -= len(a) + objectSize; r.remaining >= 0 {
			visit(family, a)
		}
	})
	r.interrupted = r.interrupted || interrupted
	r.errs = append(r.errs, err)
	if r.remaining < 0 {
		r.errs = append(r.errs, tooLong(r.limit))
	}
}

// find returns the table with the name and the family (an NFPROTO constant), or nil if there is
// none. The search begins at lastFound, because the kernel lists chains in the order of their
// tables.
func (r *tableReader) find(family uint8, name string) *foundTable {
	f, known := decodeFamily(family)
	if !known {
		return nil
	}
	i, ok := indexFrom(r.lastFound, len(r.tables), func(i int) bool {
		return r.tables[i].Family == f && r.tables[i].Name == name
	})
	if !ok {
		return nil
	}
	r.lastFound = i
	return &r.tables[i]
}

// indexFrom returns the first of n indexes for which matches returns true, beginning with start and
// continuing with 0 after the last one. If the elements are searched in their order, a search takes
// constant time on average.
func indexFrom(start, n int, matches func(int) bool) (index int, ok bool) {
	for k := range n {
		if i := (start + k) % n; matches(i) {
			return i, true
		}
	}
	return 0, false
}

// readChains adds the chains of all tables, without their rules.
func (r *tableReader) readChains(unmodeled *unmodeledChains) {
	r.dump(unix.NFT_MSG_GETCHAIN, rules.Inet, nil, func(family uint8, a attributes) {
		if unmodeled != nil {
			unmodeled.addChain(family, a)
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

// readSets returns the sets of a table. It stores in t the names of the named sets, and the number
// of elements of each set.
func (r *tableReader) readSets(t *foundTable) decodedSets {
	sets := decodedSets{}
	t.elements = map[string]int{}
	var names []string
	r.dump(unix.NFT_MSG_GETSET, t.Family, t.addTableName(unix.NFTA_SET_TABLE),
		func(_ uint8, a attributes) {
			name := a.Text(unix.NFTA_SET_NAME)
			sets[name] = decodeSet(a)
			sets[name].isDynamic = sets[name].isDynamic ||
				t.untilChange && a.Number(unix.NFTA_SET_FLAGS)&unix.NFT_SET_TIMEOUT != 0
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
	unused := make(map[string]bool, len(t.namedSets))
	for _, name := range t.namedSets {
		unused[name] = true
	}
	var chain *rules.Chain // the chain of the previous rule, nil if unknown
	lastIndex := 0         // the index of the last chain that was found
	var raw []rawRule
	r.dump(unix.NFT_MSG_GETRULE, t.Family, t.addTableName(unix.NFTA_RULE_TABLE),
		func(_ uint8, a attributes) {
			if chain == nil || !a.HasText(unix.NFTA_RULE_CHAIN, chain.Name) {
				chain = nil
				i, ok := indexFrom(lastIndex, len(t.Chains), func(i int) bool {
					return a.HasText(unix.NFTA_RULE_CHAIN, t.Chains[i].Name)
				})
				if ok {
					chain, lastIndex = &t.Chains[i], i
				}
			}
			if chain == nil || !a.HasText(unix.NFTA_RULE_TABLE, t.Name) {
				return
			}
			deleteUsedSets(unused, a.Get(unix.NFTA_RULE_EXPRESSIONS))
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
	for _, name := range t.namedSets {
		if unused[name] {
			t.UnusedSets = append(t.UnusedSets, name)
		}
	}
	decodeRaw(t.Family, sets, raw, &r.budget)
}

// deleteUsedSets deletes from unused the sets that the expressions of a rule use. It also considers
// expressions that the model cannot represent.
func deleteUsedSets(unused map[string]bool, expressions attributes) {
	if len(unused) == 0 {
		return
	}
	expressions.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		data := attributes(e.Get(unix.NFTA_EXPR_DATA))
		switch e.Text(unix.NFTA_EXPR_NAME) {
		case "lookup":
			delete(unused, data.Text(unix.NFTA_LOOKUP_SET))
		case "dynset":
			delete(unused, data.Text(unix.NFTA_DYNSET_SET_NAME))
		case "objref":
			delete(unused, data.Text(unix.NFTA_OBJREF_SET_NAME))
		}
	})
}

// A rawRule is a rule before it is decoded.
type rawRule struct {
	chain *rules.Chain
	attrs attributes
	// indexScope is [ruleDecoder.indexScope].
	indexScope netns.ID
	// The other fields are set for a rule of [DecodeTables]. unknowns contains one Unknown for each
	// expression with the name unknownExpression, in order. line and incomplete are [Rule.Line] and
	// [Rule.Incomplete].
	unknowns   []rules.Unknown
	line       rules.Line
	incomplete bool
}

// decodeRaw decodes rules and adds them to their chains. It first marks the sets that rules change,
// because preceding rules may look up values in these sets. budget is as in decodeRules.
func decodeRaw(family rules.Family, sets decodedSets, raw []rawRule, budget *int) {
	for _, r := range raw {
		attributes(r.attrs.Get(unix.NFTA_RULE_EXPRESSIONS)).Each(func(_ uint16, value []byte) {
			e := attributes(value)
			if !e.HasText(unix.NFTA_EXPR_NAME, "dynset") {
				return
			}
			change := attributes(e.Get(unix.NFTA_EXPR_DATA))
			if s := sets[change.Text(unix.NFTA_DYNSET_SET_NAME)]; s != nil {
				s.isDynamic = true
				s.hasLimits = s.hasLimits || addsLimit(change)
			}
		})
	}
	for _, r := range raw {
		r.chain.Rules = append(r.chain.Rules, decodeRules(budget, family, sets, r)...)
	}
}

// addsLimit reports whether the elements that a dynset expression adds have an expression that can
// prevent their match.
func addsLimit(dynset attributes) bool {
	found := affectsMatch(dynset.Get(unix.NFTA_DYNSET_EXPR))
	attributes(dynset.Get(expr.NFTA_DYNSET_EXPRESSIONS)).Each(func(_ uint16, e []byte) {
		found = found || affectsMatch(e)
	})
	return found
}

// decodeFamily returns the family for an NFPROTO constant. It returns false if the model does not
// support the family.
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

// orderChains sets Base.Order of the base chains at each position where a table has several chains
// of equal priority. The kernel lists the chains of a table in the order of their creation, but
// calls chains of equal priority in the reverse order.
func orderChains(rs *rules.Ruleset) {
	for h := range rules.Ingress + 1 {
		for chains := rs.BaseChains(h); len(chains) > 0; {
			end := slices.IndexFunc(chains, func(c rules.ChainRef) bool {
				return c.Chain.Base.Position() != chains[0].Chain.Base.Position()
			})
			if end < 0 {
				end = len(chains)
			}
			orderChainsAt(chains[:end])
			chains = chains[end:]
		}
	}
}

// orderChainsAt sets Base.Order of the chains at one position if a table has several chains there.
func orderChainsAt(chains []rules.ChainRef) {
	changed := false
	for from := 0; from < len(chains); {
		end := from + 1
		for end < len(chains) && isListedInReverse(chains[from], chains[end]) {
			end++
		}
		slices.Reverse(chains[from:end])
		changed = changed || end > from+1
		from = end
	}
	// At the priority of conntrack, Order would also specify the order of the chain and conntrack,
	// which is unknown.
	if !changed || chains[0].Chain.Base.Position() == rules.ConntrackPriority {
		return
	}
	for i, c := range chains {
		c.Chain.Base.Order = i
	}
}

// isListedInReverse reports whether the kernel calls two chains in the reverse of the listed order:
// they belong to one table, have equal priority, and both or neither of them are NAT chains.
func isListedInReverse(a, b rules.ChainRef) bool {
	x, y := a.Chain.Base, b.Chain.Base
	return a.Table == b.Table && x.Priority == y.Priority &&
		(x.Type == rules.NAT) == (y.Type == rules.NAT)
}
