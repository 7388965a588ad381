package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A foundTable is a table of which chains and rules may not have been read yet.
type foundTable struct {
	rules.Table
	// splits tells that a rule with a verdict map is read as several.
	splits bool
	// dormant tells that the kernel calls none of the table's chains.
	dormant bool
	// namedSets are the sets that do not belong to a rule.
	namedSets []string
	// elements counts the elements of each set. There are more than we would write when somebody else has written some.
	elements map[string]int
}

// decodeTable reads a table without its chains.
func decodeTable(family rules.Family, a attributes) foundTable {
	return foundTable{
		Table: rules.Table{
			Family: family, Name: a.text(unix.NFTA_TABLE_NAME),
			Comment: comment(a.get(nftaTableUserdata)),
		},
		dormant: a.number(unix.NFTA_TABLE_FLAGS)&unix.NFT_TABLE_F_DORMANT != 0,
	}
}

// addChain adds a chain without its rules. Those of a dormant table have no hook: that is what the kernel makes of them.
func (t *foundTable) addChain(a attributes) {
	c := decodeChain(a)
	if t.dormant {
		c.Base = nil
	}
	t.Chains = append(t.Chains, c)
}

// decodeChain reads a chain without its rules.
func decodeChain(a attributes) rules.Chain {
	c := rules.Chain{Name: a.text(unix.NFTA_CHAIN_NAME)}
	hook := attributes(a.get(unix.NFTA_CHAIN_HOOK))
	if hook == nil {
		return c
	}
	c.Base = &rules.Base{
		Priority: int(int32(hook.number(unix.NFTA_HOOK_PRIORITY))),
		Drop:     a.number(unix.NFTA_CHAIN_POLICY) == 0,
	}
	for h, number := range hookNumbers {
		if number == hook.number(unix.NFTA_HOOK_HOOKNUM) {
			c.Base.Hook = h
		}
	}
	for _, t := range []rules.ChainType{rules.Filter, rules.NAT, rules.Route} {
		if t.String() == a.text(unix.NFTA_CHAIN_TYPE) {
			c.Base.Type = t
		}
	}
	return c
}

// setDecoder holds the sets of a table while its rules are read.
type setDecoder map[string]*decodedSet

// decodedSet is a set as it was read.
type decodedSet struct {
	anonymous bool
	interval  bool
	unknown   string // what the model has no word for
	elements  []element
	// verdicts are what a verdict map has for its keys, by the key or the first key of an interval; nil if it is none.
	verdicts map[string]attributes
}

func decodeSet(a attributes) *decodedSet {
	flags := a.number(unix.NFTA_SET_FLAGS)
	s := &decodedSet{anonymous: flags&unix.NFT_SET_ANONYMOUS != 0, interval: flags&unix.NFT_SET_INTERVAL != 0}
	known := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_INTERVAL)
	if flags&unix.NFT_SET_MAP != 0 && a.number(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT {
		known |= unix.NFT_SET_MAP
		s.verdicts = map[string]attributes{}
	}
	if other := flags &^ known; other != 0 {
		s.unknown = fmt.Sprintf("set %s with flags 0x%x", a.text(unix.NFTA_SET_NAME), other)
	}
	return s
}

// decides tells whether an expression of an element has a say in whether the element matches: a limit or a quota, but no counter.
func decides(expression attributes) bool {
	return expression != nil && expression.text(unix.NFTA_EXPR_NAME) != "counter"
}

// addElements reads a part of the set's elements.
func (s *decodedSet) addElements(list attributes) {
	list.each(func(_ uint16, value []byte) {
		el := attributes(value)
		key := slices.Clone(attributes(el.get(unix.NFTA_SET_ELEM_KEY)).get(unix.NFTA_DATA_VALUE))
		if key == nil {
			s.unknown = "set element without key"
			return
		}
		if decides(el.get(unix.NFTA_SET_ELEM_EXPR)) || el.get(nftaSetElemExpressions) != nil {
			s.unknown = "set element with expressions"
		}
		if data := attributes(el.get(unix.NFTA_SET_ELEM_DATA)); data != nil && s.verdicts != nil {
			s.verdicts[string(key)] = slices.Clone(attributes(data.get(unix.NFTA_DATA_VERDICT)))
		}
		s.elements = append(s.elements, element{key, el.number(unix.NFTA_SET_ELEM_FLAGS)&unix.NFT_SET_ELEM_INTERVAL_END != 0})
	})
}

// keys returns the intervals of keys that the set holds, each with its first and last key, in no order; those of another set than
// of intervals are single.
func (s *decodedSet) keys() ([][2][]byte, error) {
	if s.unknown != "" {
		return nil, fmt.Errorf("%s", s.unknown)
	}
	keys := make([][2][]byte, 0, len(s.elements))
	if !s.interval {
		for _, el := range s.elements {
			keys = append(keys, [2][]byte{el.key, el.key})
		}
		return keys, nil
	}
	// The kernel lists intervals in one order or the other; at equal keys an end precedes the start behind it.
	slices.SortFunc(s.elements, func(a, b element) int {
		if d := slices.Compare(a.key, b.key); d != 0 || a.end == b.end {
			return d
		}
		if a.end {
			return -1
		}
		return 1
	})
	for i, el := range s.elements {
		if el.end {
			continue
		}
		last := slices.Repeat([]byte{0xff}, len(el.key))
		if i+1 < len(s.elements) {
			last = decrement(s.elements[i+1].key)
		}
		keys = append(keys, [2][]byte{el.key, last})
	}
	return keys, nil
}

// decrement returns the number one less.
func decrement(key []byte) []byte {
	key = slices.Clone(key)
	for i := len(key) - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
	return key
}

// increment returns the number one more.
func increment(key []byte) []byte {
	key = slices.Clone(key)
	for i := len(key) - 1; i >= 0; i-- {
		key[i]++
		if key[i] != 0 {
			break
		}
	}
	return key
}
