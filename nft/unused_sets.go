package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// setNameAttribute returns the attribute of an expression that contains the name of a set. ok
// reports whether the expression has such an attribute.
func setNameAttribute(expression string) (attr uint16, ok bool) {
	switch expression {
	case "lookup":
		return unix.NFTA_LOOKUP_SET, true
	case "dynset":
		return unix.NFTA_DYNSET_SET_NAME, true
	case "objref":
		return unix.NFTA_OBJREF_SET_NAME, true
	}
	return 0, false
}

// recordUsedSets removes the sets that a rule's expressions use from UnusedSets. It also considers
// expressions that the model cannot represent.
func (t *foundTable) recordUsedSets(expressions attributes) {
	if len(t.UnusedSets) == 0 {
		return
	}
	expressions.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		attr, ok := setNameAttribute(e.Text(unix.NFTA_EXPR_NAME))
		if !ok {
			return
		}
		name := attributes(e.Get(unix.NFTA_EXPR_DATA)).Text(attr)
		t.UnusedSets = slices.DeleteFunc(t.UnusedSets, func(s string) bool { return s == name })
	})
}
