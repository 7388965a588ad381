package nftlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A Listing contains the tables of a listing, and describes what the listing does not show.
type Listing struct {
	Tables []rules.Table
	// Undecided contains sentences about information that the listing lacks, and that may affect
	// packets at prerouting and output.
	Undecided []string
	// UnmodeledChains describes base chains that may affect packets and that Tables does not
	// contain: chains at the hooks of a device, and chains of other families, such as bridge. If
	// there are very many, the last line is the number of further chains.
	UnmodeledChains []string
}

type (
	tableObject struct {
		Family string          `json:"family"`
		Name   string          `json:"name"`
		Flags  json.RawMessage `json:"flags"`
	}
	chainObject struct {
		Family   string  `json:"family"`
		Table    string  `json:"table"`
		Name     string  `json:"name"`
		Type     *string `json:"type"`
		Hook     *string `json:"hook"`
		Priority *int    `json:"prio"`
		Policy   string  `json:"policy"`
	}
	ruleObject struct {
		Family     string      `json:"family"`
		Table      string      `json:"table"`
		Chain      string      `json:"chain"`
		Handle     uint64      `json:"handle"`
		Comment    string      `json:"comment"`
		Statements []statement `json:"expr"`
		line       rules.Line  // in text
	}
	// setObject is a set or, if Map is set, a map.
	setObject struct {
		Family     string            `json:"family"`
		Table      string            `json:"table"`
		Name       string            `json:"name"`
		Type       json.RawMessage   `json:"type"` // a name or a list of names, else ignored
		Flags      json.RawMessage   `json:"flags"`
		Size       uint32            `json:"size"`
		Timeout    json.RawMessage   `json:"timeout"` // in seconds
		Map        json.RawMessage   `json:"map"`
		Elements   []json.RawMessage `json:"elem"`
		Statements []json.RawMessage `json:"stmt"`
	}
	// objectID identifies a table or, if name is set, a chain or a set of the table.
	objectID struct{ family, table, name string }
)

// A reader collects the objects of a listing.
type reader struct {
	tables      []tableObject
	chains      []chainObject
	rules       map[objectID][]ruleObject // of each chain
	sets        map[objectID]setObject
	changedSets map[string]bool // names of sets that an unsupported statement may change
	// mayChangeAnySet reports whether there is an unsupported statement that may change any set.
	mayChangeAnySet bool
	isText          bool
	// omitsElements is the result of mayOmitElements.
	omitsElements bool
}

func newReader() *reader {
	return &reader{
		rules: map[objectID][]ruleObject{}, sets: map[objectID]setObject{},
		changedSets: map[string]bool{},
	}
}

// mayOmitElements reports whether no named set has elements, as in the output of nft -t, which
// omits them.
func (in *reader) mayOmitElements() bool {
	for _, s := range in.sets {
		if len(s.Elements) > 0 {
			return false
		}
	}
	return true
}

// addRule stores a rule.
func (in *reader) addRule(r ruleObject) {
	id := objectID{r.Family, r.Table, r.Chain}
	in.rules[id] = append(in.rules[id], r)
}

// listing builds the listing from the objects.
func (in *reader) listing() (*Listing, error) {
	l := new(Listing)
	var tables []nft.Table
	var sets []*setBuilder
	in.omitsElements = in.mayOmitElements()
	dormant := map[objectID]bool{} // tables
	indexes := map[objectID]int{}  // of tables
	listed := map[objectID]bool{}  // tables and chains
	for _, t := range in.tables {
		key := objectID{t.Family, t.Name, ""}
		if listed[key] {
			return nil, fmt.Errorf("table %s %s is listed twice", t.Family, t.Name)
		}
		listed[key] = true
		flags := flagsOf(t.Flags)
		dormant[key] = slices.Contains(flags, "dormant")
		family, ok := families()[t.Family]
		if !ok || dormant[key] {
			continue // see UnmodeledChains
		}
		l.Undecided = append(l.Undecided, undecidedFlags(t, flags)...)
		indexes[key] = len(tables)
		tables = append(tables, nft.Table{Family: family, Name: t.Name})
		sets = append(sets, newSetBuilder(in, key))
	}
	for _, c := range in.chains {
		i, base, err := placeChain(indexes, listed, c)
		if err != nil {
			return nil, fmt.Errorf("chain %s %s %s: %w", c.Family, c.Table, c.Name, err)
		}
		if i < 0 {
			if !dormant[objectID{c.Family, c.Table, ""}] {
				in.addUnmodeledChain(l, c)
			}
		} else {
			tables[i].Chains = append(tables[i].Chains, nft.Chain{
				Name: c.Name, Base: base, Rules: in.compile(c, sets[i]),
			})
		}
	}
	for id := range in.rules {
		if !listed[id] {
			return nil, fmt.Errorf("chain %s %s %s has rules, but it is not listed", id.family,
				id.table, id.name)
		}
	}
	for i := range tables {
		tables[i].Sets = sets[i].complete()
	}
	if more := len(l.UnmodeledChains) - maxSentences; more > 0 {
		l.UnmodeledChains = append(l.UnmodeledChains[:maxSentences], fmt.Sprintf("%d more chains", more))
	}
	return l, in.decodeTables(l, tables)
}

// undecidedFlags returns a sentence for each flag of a table that may mean that the table is
// dormant.
func undecidedFlags(t tableObject, flags []string) []string {
	var sentences []string
	for _, f := range flags {
		if f != "owner" && f != "persist" {
			sentences = append(sentences, fmt.Sprintf(
				"the listing does not show whether table %s %s is dormant: the flag %q is unknown",
				t.Family, t.Name, f))
		}
	}
	return sentences
}

// decodeTables decodes and checks the tables, and adds them to the listing. It also adds sentences
// about the tables to Undecided.
func (in *reader) decodeTables(l *Listing, tables []nft.Table) error {
	var err error
	if l.Tables, err = nft.DecodeTables(tables); err != nil {
		return err
	}
	for i := range l.Tables {
		if err := checkJumps(&l.Tables[i]); err != nil {
			return err
		}
	}
	if in.isText {
		l.Undecided = append(l.Undecided, undecidedTranslations(l.Tables)...)
	}
	order, err := undecidedOrder(l.Tables)
	l.Undecided = append(l.Undecided, order...)
	return err
}

// placeChain returns the index of the table to which a chain belongs, and the base of the chain.
// For a chain that Tables does not contain it returns a negative index.
func placeChain(
	indexes map[objectID]int, listed map[objectID]bool, c chainObject,
) (int, *rules.Base, error) {
	key := objectID{c.Family, c.Table, c.Name}
	if listed[key] {
		return 0, nil, errors.New("it is listed twice")
	}
	listed[key] = true
	if !listed[objectID{c.Family, c.Table, ""}] {
		return 0, nil, errors.New("its table is not listed")
	}
	i, ok := indexes[objectID{c.Family, c.Table, ""}]
	if !ok {
		return -1, nil, nil
	}
	base, known, err := baseOf(c)
	if err == nil && !known {
		return -1, nil, nil
	}
	return i, base, err
}

// families returns the families that the model supports, by name.
func families() map[string]rules.Family {
	return map[string]rules.Family{"ip": rules.IPv4, "ip6": rules.IPv6, "inet": rules.Inet}
}

// flagsOf decodes a flag or a list of flags. For other JSON it returns the text.
func flagsOf(flags json.RawMessage) []string {
	if isNull(flags) {
		return nil
	}
	var word string
	var several []string
	switch {
	case json.Unmarshal(flags, &word) == nil:
		return []string{word}
	case json.Unmarshal(flags, &several) == nil:
		return several
	}
	return []string{string(flags)}
}

// addUnmodeledChain adds a chain to UnmodeledChains if it may affect packets: a base chain with
// rules or with the policy drop. The table must not be dormant. addUnmodeledChain also records the
// sets that the rules may change.
func (in *reader) addUnmodeledChain(l *Listing, c chainObject) {
	list := in.rules[objectID{c.Family, c.Table, c.Name}]
	if c.Hook == nil || len(list) == 0 && c.Policy != "drop" {
		return
	}
	if _, isModeled := families()[c.Family]; isModeled { // other chains have other sets
		for _, r := range list {
			for _, s := range r.Statements {
				in.recordChanges(s)
			}
		}
	}
	l.UnmodeledChains = append(l.UnmodeledChains,
		fmt.Sprintf("chain %s %s %s at %s", c.Family, c.Table, c.Name, *c.Hook))
}

// baseOf returns the base of a chain, or nil for a user-defined chain. known is false if the hook
// is a hook of a device.
func baseOf(c chainObject) (base *rules.Base, known bool, err error) {
	if c.Hook == nil {
		return nil, true, nil
	}
	if *c.Hook == "ingress" || *c.Hook == "egress" {
		return nil, false, nil
	}
	base = &rules.Base{Drop: c.Policy == "drop"}
	if c.Policy != "" && c.Policy != "drop" && c.Policy != "accept" {
		return nil, false, fmt.Errorf("policy %q is not known (accept or drop)", c.Policy)
	}
	if c.Type == nil || c.Priority == nil {
		return nil, false, errors.New("it has a hook, but no type or no priority")
	}
	base.Priority = *c.Priority
	if base.Hook, known = findNamed(*c.Hook, rules.Prerouting, rules.Input, rules.Forward,
		rules.Output, rules.Postrouting); !known {
		return nil, false, fmt.Errorf("hook %q is not known (prerouting, input, forward, output, "+
			"postrouting, ingress or egress)", *c.Hook)
	}
	if base.Type, known = findNamed(*c.Type, rules.Filter, rules.NAT, rules.Route); !known {
		return nil, false, fmt.Errorf("type %q is not known (filter, nat or route)", *c.Type)
	}
	return base, true, nil
}
