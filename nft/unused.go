package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// setNames says, for each expression that uses a set, which attribute names it.
var setNames = map[string]uint16{
	"lookup": unix.NFTA_LOOKUP_SET, "dynset": unix.NFTA_DYNSET_SET_NAME, "objref": unix.NFTA_OBJREF_SET_NAME,
}

// used takes the sets that a rule's expressions use, known to the model or not, out of those that none uses.
func (t *foundTable) used(expressions attributes) {
	if len(t.UnusedSets) == 0 {
		return
	}
	expressions.each(func(_ uint16, value []byte) {
		e := attributes(value)
		attr, ok := setNames[e.text(unix.NFTA_EXPR_NAME)]
		if !ok {
			return
		}
		name := attributes(e.get(unix.NFTA_EXPR_DATA)).text(attr)
		t.UnusedSets = slices.DeleteFunc(t.UnusedSets, func(s string) bool { return s == name })
	})
}
