package nftlist

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft"
)

// A setBuilder builds the sets of a table that rules use. The encoding of the elements depends on
// the types of the fields that a rule looks up in the set.
type setBuilder struct {
	in      *reader
	id      objectID // the table
	sets    []nft.Set
	named   map[string]builtSet
	changed map[string]bool // names of sets that rules change
	// anonymous is the number of anonymous sets.
	anonymous int
	// forms contains the results of formOf for named maps.
	forms map[string]string
}

// A builtSet is a named set with the types of its fields and values.
type builtSet struct {
	set          nft.Set
	keys, values []datatype
}

func newSetBuilder(in *reader, id objectID) *setBuilder {
	return &setBuilder{
		in: in, id: id, named: map[string]builtSet{}, changed: map[string]bool{},
		forms: map[string]string{},
	}
}

// get returns a set or, if isMap is set, a map. e contains the name or the elements of the set.
// values are the types of the values of a map, and empty for a verdict map. get builds a named set
// when a rule uses it for the first time. It returns false if there is no such set, if the elements
// of an anonymous set cannot be encoded, or if another rule uses the set with other types.
func (b *setBuilder) get(
	e json.RawMessage, fields []field, values []datatype, isMap bool,
) (*nft.Set, bool) {
	keys := make([]datatype, len(fields))
	for i, f := range fields {
		keys[i] = f.datatype
	}
	var name string
	if json.Unmarshal(e, &name) == nil {
		name, isNamed := strings.CutPrefix(name, "@")
		object, ok := b.in.sets[objectID{b.id.family, b.id.table, name}]
		if !isNamed || !isName(name) || !ok || (object.Map != nil) != isMap {
			return nil, false
		}
		return b.getNamed(name, object, keys, values)
	}
	elements := listIn(e, "set")
	if elements == nil {
		return nil, false
	}
	b.anonymous++
	s := nft.Set{
		Name: fmt.Sprintf("{ %d }", b.anonymous), Anonymous: true, IsMap: isMap,
		Interval: hasIntervals(elements, isMap),
	}
	setLengths(&s, keys, values)
	if reason := encodeElements(&s, elements, keys, values); reason != "" {
		return nil, false
	}
	b.sets = append(b.sets, s)
	return &s, true
}

// getNamed returns the set with the name, which it builds at the first call. It returns false if
// another rule uses the set with other types.
func (b *setBuilder) getNamed(
	name string, object setObject, keys, values []datatype,
) (*nft.Set, bool) {
	if built, ok := b.named[name]; ok {
		return &built.set, slices.EqualFunc(built.keys, keys, datatype.encodesLike) &&
			slices.EqualFunc(built.values, values, datatype.encodesLike)
	}
	flags := flagsOf(object.Flags)
	// In JSON, nft 1.0.6 omits the flag dynamic, which a set with timeouts may have.
	isWritten := slices.Contains(flags, "dynamic") || slices.Contains(flags, "eval") ||
		!b.in.isText && slices.Contains(flags, "timeout")
	s := nft.Set{
		Name: name, Interval: slices.Contains(flags, "interval"), IsMap: object.Map != nil,
		IsDynamic: isWritten,
	}
	setLengths(&s, keys, values)
	s.UnknownReason, s.Size = unknownReason(object, flags), object.Size
	if len(object.Timeout) > 0 {
		if json.Unmarshal(object.Timeout, &s.Timeout) != nil || s.Timeout > math.MaxUint32 {
			s.UnknownReason = "set with timeout " + string(object.Timeout)
		}
		s.Timeout *= 1000 // in milliseconds
	}
	if s.UnknownReason == "" && !isWritten && b.in.omitsElements {
		s.UnknownReason = "set whose elements may not be listed"
	}
	if s.UnknownReason == "" {
		s.UnknownReason = encodeElements(&s, object.Elements, keys, values)
	}
	if s.UnknownReason != "" {
		s.Elements = nil
	}
	b.sets = append(b.sets, s)
	b.named[name] = builtSet{s, keys, values}
	return &s, true
}

// complete returns the sets. The elements of a set that an unsupported statement may change are
// unknown. So are the elements of a set that rules change, if omitsExpiration returns true for it.
func (b *setBuilder) complete() []nft.Set {
	for i := range b.sets {
		s := &b.sets[i]
		switch {
		case s.Anonymous:
		case b.in.mayChangeAnySet || b.in.changedSets[s.Name]:
			s.Elements, s.UnknownReason = nil, "set that an unsupported statement may change"
		case s.UnknownReason == "" && (s.IsDynamic || b.changed[s.Name]) &&
			omitsExpiration(b.in.sets[objectID{b.id.family, b.id.table, s.Name}]):
			s.Elements, s.UnknownReason = nil, "set element without the time of its expiration"
		}
	}
	return b.sets
}

// omitsExpiration reports whether the listing may not show that elements expire. With -s, elements
// that expire after the timeout of the set look like elements that do not expire.
func omitsExpiration(object setObject) bool {
	return len(object.Timeout) > 0 && slices.ContainsFunc(object.Elements,
		func(e json.RawMessage) bool {
			element, ok := decodeKey(e)
			return !ok || !element.expires
		})
}

// unknownReason returns the reason why the elements of a set are unknown, or an empty string.
func unknownReason(object setObject, flags []string) string {
	for _, f := range flags {
		switch f {
		case "constant", "interval", "timeout", "dynamic", "eval":
		default:
			return "set with flag " + f
		}
	}
	for _, s := range object.Statements {
		if kind, _ := onlyMember(s); kind != "counter" {
			return "set with statement " + kind
		}
	}
	return ""
}

// setLengths sets the lengths of keys, of their fields and of values.
func setLengths(s *nft.Set, keys, values []datatype) {
	s.KeyLength = keys[0].size
	if len(keys) > 1 {
		s.KeyLength = 0
		for _, t := range keys {
			s.KeyLength += 4 * words(t.size)
			if s.Interval {
				s.FieldLengths = append(s.FieldLengths, t.size)
			}
		}
	}
	for _, t := range values {
		s.DataLength += t.size
		switch {
		case len(values) > 1:
			s.DataLength += 4*words(t.size) - t.size
		case t.isPair:
			s.DataLength += t.size
		}
	}
}
