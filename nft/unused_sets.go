package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// setNameAttribute returns the attribute with the name of a set in expressions of the given name.
// ok reports whether such expressions refer to a set.
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

// removeUsedSets removes the sets that the expressions of a rule use from UnusedSets. It also
// considers expressions that the model cannot represent.
func (t *foundTable) removeUsedSets(expressions attributes) {
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
