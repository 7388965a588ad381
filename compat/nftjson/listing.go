package nftjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Listing is the content of a listing.
type Listing struct {
	Tables []rules.Table
	// Undecided are sentences about missing information that may affect packets at prerouting and
	// output.
	Undecided []string
	// Elsewhere describes chains with rules that are not at the hooks of Tables, such as chains of
	// a device.
	Elsewhere []string
}

// maxSize is the maximum size of a listing in bytes.
const maxSize = 256 << 20

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
		Family  string                       `json:"family"`
		Table   string                       `json:"table"`
		Chain   string                       `json:"chain"`
		Handle  uint64                       `json:"handle"`
		Comment string                       `json:"comment"`
		Expr    []map[string]json.RawMessage `json:"expr"`
	}
	setObject struct {
		Family   string            `json:"family"`
		Table    string            `json:"table"`
		Name     string            `json:"name"`
		Flags    json.RawMessage   `json:"flags"`
		Timeout  json.RawMessage   `json:"timeout"`
		Elements []json.RawMessage `json:"elem"`
	}
	metaObject struct {
		Version *int `json:"json_schema_version"`
	}
	// place identifies a table or, with a name, a chain or set of it.
	place struct{ family, table, name string }
)

// schemaVersion is the supported version of the format.
const schemaVersion = 1

// reader collects the objects of a listing.
type reader struct {
	tables  []tableObject
	chains  []chainObject
	rules   []ruleObject
	sets    map[place]setObject
	changed map[string]bool // sets that rules change, by name
}

// Parse parses a listing. The name of the file is used in errors.
func Parse(file string, r io.Reader) (*Listing, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s: more than %d MiB", file, maxSize>>20)
	}
	var document struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: %w; want the output of nft -j list ruleset", file, err)
	}
	if document.Objects == nil {
		return nil, fmt.Errorf(
			"%s: there is no list \"nftables\": want the output of nft -j list ruleset", file)
	}
	in := reader{sets: map[place]setObject{}, changed: map[string]bool{}}
	for i, object := range document.Objects {
		for kind, body := range object {
			if err := in.object(kind, body); err != nil {
				return nil, fmt.Errorf("%s: object %d, %s: %w", file, i+1, kind, err)
			}
		}
	}
	listing, err := in.listing()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return listing, nil
}

// object stores an object. Other objects, such as maps and named counters, are relevant only for
// statements that use them, which are unsupported.
func (in *reader) object(kind string, body json.RawMessage) error {
	switch kind {
	case "metainfo":
		var m metaObject
		if err := json.Unmarshal(body, &m); err != nil {
			return err
		}
		if m.Version != nil && *m.Version != schemaVersion {
			return fmt.Errorf("version %d of the format: want %d", *m.Version, schemaVersion)
		}
	case "table":
		return keep(body, &in.tables)
	case "chain":
		return keep(body, &in.chains)
	case "rule":
		return keep(body, &in.rules)
	case "set":
		var s setObject
		if err := json.Unmarshal(body, &s); err != nil {
			return err
		}
		in.sets[place{s.Family, s.Table, s.Name}] = s
	case "element":
		return errors.New("elements apart from their set: want the output of nft -j list ruleset")
	}
	return nil
}

func keep[T any](body json.RawMessage, list *[]T) error {
	var one T
	if err := json.Unmarshal(body, &one); err != nil {
		return err
	}
	*list = append(*list, one)
	return nil
}

// listing returns the complete listing.
func (in *reader) listing() (*Listing, error) {
	for i := range in.rules {
		for _, statement := range in.rules[i].Expr {
			in.noteChanges(statement)
		}
	}
	l := new(Listing)
	at := map[place]int{}
	for _, t := range in.tables {
		if isDormant(t.Flags) {
			continue
		}
		family, ok := families()[t.Family]
		if !ok {
			continue // see elsewhere
		}
		at[place{t.Family, t.Name, ""}] = len(l.Tables)
		l.Tables = append(l.Tables, rules.Table{Family: family, Name: t.Name})
	}
	for _, c := range in.chains {
		i, ok := at[place{c.Family, c.Table, ""}]
		if !ok {
			in.elsewhere(l, c)
			continue
		}
		base, known, err := baseOf(c)
		if err != nil {
			return nil, fmt.Errorf("chain %s %s %s: %w", c.Family, c.Table, c.Name, err)
		}
		if !known {
			in.elsewhere(l, c)
			continue
		}
		t := &l.Tables[i]
		if t.Chain(c.Name) != nil {
			return nil, fmt.Errorf("chain %s %s %s is listed twice", c.Family, c.Table, c.Name)
		}
		t.Chains = append(t.Chains, rules.Chain{Name: c.Name, Base: base, Rules: in.rulesOf(c)})
	}
	for i := range l.Tables {
		if err := checkJumps(&l.Tables[i]); err != nil {
			return nil, err
		}
	}
	l.Undecided = undecidedOrder(l.Tables)
	return l, nil
}

// families returns the families whose packets are compared.
func families() map[string]rules.Family {
	return map[string]rules.Family{"ip": rules.IPv4, "ip6": rules.IPv6, "inet": rules.Inet}
}

// isDormant reports whether the flags of a table, one or a list, disable its chains.
func isDormant(flags json.RawMessage) bool {
	var one string
	var several []string
	if json.Unmarshal(flags, &one) != nil {
		_ = json.Unmarshal(flags, &several)
	}
	return one == "dormant" || slices.Contains(several, "dormant")
}

// elsewhere describes a base chain with rules that is not part of the tables.
func (in *reader) elsewhere(l *Listing, c chainObject) {
	dormant := slices.ContainsFunc(in.tables, func(t tableObject) bool {
		return t.Family == c.Family && t.Name == c.Table && isDormant(t.Flags)
	})
	if c.Hook == nil || dormant || len(in.rulesOf(c)) == 0 && c.Policy != "drop" {
		return
	}
	l.Elsewhere = append(l.Elsewhere,
		fmt.Sprintf("chain %s %s %s at %s", c.Family, c.Table, c.Name, *c.Hook))
}

// baseOf returns the base of a chain, or nil for a user-defined chain. known is false if the hook
// is one of a device.
func baseOf(c chainObject) (base *rules.Base, known bool, err error) {
	if c.Hook == nil {
		return nil, true, nil
	}
	if *c.Hook == "ingress" || *c.Hook == "egress" {
		return nil, false, nil
	}
	base = &rules.Base{Drop: c.Policy == "drop"}
	if c.Policy != "" && c.Policy != "drop" && c.Policy != "accept" {
		return nil, false, fmt.Errorf("policy %q is not known", c.Policy)
	}
	if c.Type == nil || c.Priority == nil {
		return nil, false, errors.New("a chain with a hook has no type or no priority")
	}
	base.Priority = *c.Priority
	found := false
	for base.Hook = rules.Prerouting; base.Hook < rules.Ingress; base.Hook++ {
		if found = base.Hook.String() == *c.Hook; found {
			break
		}
	}
	if !found {
		return nil, false, fmt.Errorf("hook %q is not known", *c.Hook)
	}
	for base.Type = rules.Filter; base.Type <= rules.Route; base.Type++ {
		if base.Type.String() == *c.Type {
			return base, true, nil
		}
	}
	return nil, false, fmt.Errorf("type %q is not known", *c.Type)
}

// undecidedOrder returns a sentence about each pair of chains at the same position of a hook, and
// about each chain at the position of conntrack.
func undecidedOrder(tables []rules.Table) []string {
	var sentences []string
	var chains []rules.ChainRef
	for i := range tables {
		for j := range tables[i].Chains {
			c := rules.ChainRef{Table: &tables[i], Chain: &tables[i].Chains[j]}
			if c.Chain.Base != nil && (len(c.Chain.Rules) > 0 || c.Chain.Base.Drop) {
				chains = append(chains, c)
			}
		}
	}
	name := func(c rules.ChainRef) string {
		return c.Table.Family.String() + " " + c.Table.Name + " " + c.Chain.Name
	}
	for i, a := range chains {
		base := a.Chain.Base
		if base.Hook != rules.Prerouting && base.Hook != rules.Output {
			continue
		}
		if base.Priority == rules.ConntrackPriority {
			sentences = append(sentences,
				fmt.Sprintf("whether chain %s runs before conntrack is not listed", name(a)))
		}
		for _, b := range chains[i+1:] {
			apart := a.Table.Family != b.Table.Family && a.Table.Family != rules.Inet &&
				b.Table.Family != rules.Inet
			if b.Chain.Base.Hook == base.Hook && !apart && samePlace(base, b.Chain.Base) {
				sentences = append(sentences,
					fmt.Sprintf("which of the chains %s and %s runs first is not listed", name(a),
						name(b)))
			}
		}
	}
	return sentences
}

// samePlace reports whether the order of two chains of a hook is unknown.
func samePlace(a, b *rules.Base) bool {
	if a.Type == rules.NAT && b.Type == rules.NAT {
		return a.Priority == b.Priority
	}
	return a.Position() == b.Position()
}
