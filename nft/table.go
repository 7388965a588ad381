package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A Table is a table from a source other than the kernel; see [DecodeTables]. Its rules are lists
// of nf_tables expressions, which refer to sets by name.
type Table struct {
	Family rules.Family
	Name   string
	Sets   []Set
	Chains []Chain
}

// A Chain is a chain of a [Table].
type Chain struct {
	Name  string
	Base  *rules.Base // nil for a user-defined chain
	Rules []Rule
}

// A Rule is a rule of a [Chain].
type Rule struct {
	Handle  rules.Handle
	Line    rules.Line
	Comment string
	// Expressions contains values of type [expr.Any] and [Shift]. A [rules.Unknown] without Data
	// replaces expressions that the source does not specify.
	Expressions []any
	// Incomplete reports whether the rule in the kernel may have expressions other than
	// Expressions. A rule with an Unknown is always incomplete.
	Incomplete bool
}

// A Shift is an expression that shifts the number in a register. Package expr lacks it.
type Shift struct {
	Register uint32
	Length   uint32 // the length of the number in bytes
	Left     bool   // shift left, otherwise right
	Bits     uint32
}

// A Set is a set or a map of a [Table].
type Set struct {
	Name string
	// Anonymous and Interval are flags of the set.
	Anonymous, Interval bool
	// FieldLengths contains the lengths in bytes of the fields of an interval set whose keys have
	// several fields. It is nil for other sets.
	FieldLengths []int
	// IsDynamic reports whether the set has the flag dynamic. The elements of a set that rules of
	// the table change are unknown even without the flag.
	IsDynamic bool
	// IsMap reports whether elements have values: verdicts if DataLength is 0, otherwise data.
	IsMap                 bool
	KeyLength, DataLength int // in bytes
	// Size is the maximum number of elements, 0 for no maximum. Timeout is the time until an
	// element without its own timeout expires, in milliseconds, 0 for never.
	Size    uint32
	Timeout uint64
	// UnknownReason is the reason why the elements are not known, or why a packet with the key of
	// an element may fail to match. It is empty if there is no such reason.
	UnknownReason string
	Elements      []SetElement
}

// A SetElement is an element of a [Set]. In an interval set of one field, the end of an interval is
// a separate element.
type SetElement struct {
	Key         []byte        // nil if Catchall is set
	Last        []byte        // the last key of an interval of several fields
	IntervalEnd bool          // Key is the first key after the interval
	Catchall    bool          // the element for all other keys
	Expires     bool          // a timeout will delete the element
	Data        []byte        // of a map of data
	Verdict     *expr.Verdict // of a verdict map
}

// DecodeTables decodes tables as [ReadAll] decodes the tables of the kernel. It returns an error
// for expressions that the package cannot encode.
func DecodeTables(tables []Table) ([]rules.Table, error) {
	budget := maxExpansion
	decoded := make([]rules.Table, len(tables))
	for i := range tables {
		if err := tables[i].decode(&budget, &decoded[i]); err != nil {
			return nil, fmt.Errorf("table %s %s: %w", tables[i].Family, tables[i].Name, err)
		}
	}
	return decoded, nil
}

// decode decodes the table into result. budget is as in decodeRules.
func (t *Table) decode(budget *int, result *rules.Table) error {
	*result = rules.Table{
		Family: t.Family, Name: t.Name, Chains: make([]rules.Chain, len(t.Chains)),
	}
	sets := make(decodedSets, len(t.Sets))
	for i := range t.Sets {
		s := t.Sets[i].decode()
		s.table = t.Family.String() + " " + t.Name
		sets[t.Sets[i].Name] = s
	}
	var raw []rawRule
	for i := range t.Chains {
		c := &t.Chains[i]
		result.Chains[i] = rules.Chain{Name: c.Name, Base: c.Base}
		for j := range c.Rules {
			r, err := c.Rules[j].encode(t.Name)
			if err != nil {
				return fmt.Errorf("chain %s, rule %d: %w", c.Name, j+1, err)
			}
			r.chain = &result.Chains[i]
			raw = append(raw, r)
		}
	}
	decodeRaw(t.Family, sets, raw, budget)
	return nil
}

// encode encodes a rule of the table as the kernel does in a dump. An Unknown becomes an empty
// expression with the name unknownExpression. Expressions that are too long for a message become
// one Unknown, and a comment that is too long is omitted.
func (r *Rule) encode(table string) (rawRule, error) {
	raw := rawRule{line: r.Line, incomplete: r.Incomplete}
	e := encoder{messages: messages{asDumped: true}}
	e.addText(unix.NFTA_RULE_TABLE, table)
	e.addNumber64(unix.NFTA_RULE_HANDLE, uint64(r.Handle))
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	for _, x := range r.Expressions {
		var err error
		switch x := x.(type) {
		case rules.Unknown:
			raw.unknowns = append(raw.unknowns, x)
			e.writeExpression(unknownExpression, func() {})
		case Shift:
			e.writeShift(x)
		case expr.Any:
			err = e.marshal(x)
		default:
			err = fmt.Errorf("%T is not an expression", x)
		}
		if err != nil {
			return raw, err
		}
	}
	if len(e.buf)-list > maxAttribute {
		raw.unknowns = []rules.Unknown{{Text: "too many expressions", Data: rules.NoData}}
		e.buf = e.buf[:list+unix.NLA_HDRLEN]
		e.writeExpression(unknownExpression, func() {})
	}
	e.endNest(list)
	raw.incomplete = raw.incomplete || len(raw.unknowns) > 0
	if r.Comment != "" && len(r.Comment) <= maxComment {
		e.addComment(unix.NFTA_RULE_USERDATA, r.Comment)
	}
	raw.attrs = e.buf
	return raw, nil
}

// maxAttribute is the maximum length of an attribute in bytes: its length field has 16 bits.
const maxAttribute = 1<<16 - 1

// decode returns the set as if it were read from the kernel.
func (s *Set) decode() *decodedSet {
	d := &decodedSet{
		anonymous: s.Anonymous, interval: s.Interval, fieldLengths: s.FieldLengths,
		isDynamic: s.IsDynamic,
		keyLength: s.KeyLength, dataLength: s.DataLength, unsupportedReason: s.UnknownReason,
		hasLimits: s.UnknownReason != "",
	}
	if s.UnknownReason == "" {
		d.bounds = setBounds(s.Size, s.Timeout, nil, nil)
	}
	switch {
	case s.IsMap && s.DataLength == 0:
		d.verdicts = map[string]attributes{}
	case s.IsMap:
		d.data = map[string][]byte{}
	}
	e := encoder{messages: messages{asDumped: true}}
	for i := range s.Elements {
		e.writeSetElement(&s.Elements[i])
	}
	d.addElements(e.buf)
	return d
}

// writeSetElement encodes an element as the kernel does in a dump.
func (e *encoder) writeSetElement(el *SetElement) {
	n := e.beginNest(unix.NFTA_LIST_ELEM)
	if el.Key != nil {
		e.addData(unix.NFTA_SET_ELEM_KEY, el.Key)
	}
	if el.Last != nil {
		e.addData(nftaSetElemKeyEnd, el.Last)
	}
	switch {
	case el.Verdict != nil:
		e.addVerdict(unix.NFTA_SET_ELEM_DATA, el.Verdict)
	case el.Data != nil:
		e.addData(unix.NFTA_SET_ELEM_DATA, el.Data)
	}
	e.addNonZero(unix.NFTA_SET_ELEM_FLAGS, flagIf(el.IntervalEnd, unix.NFT_SET_ELEM_INTERVAL_END)|
		flagIf(el.Catchall, nftSetElemCatchall))
	if el.Expires {
		e.addNumber64(unix.NFTA_SET_ELEM_EXPIRATION, 1) // the decoder ignores the value
	}
	e.endNest(n)
}
