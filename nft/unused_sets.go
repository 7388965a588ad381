package nft

import "golang.org/x/sys/unix"

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

// deleteUsedSets deletes the sets that the expressions of a rule use from unused. It also considers
// expressions that the model cannot represent.
func deleteUsedSets(unused map[string]bool, expressions attributes) {
	if len(unused) == 0 {
		return
	}
	expressions.Each(func(_ uint16, value []byte) {
		e := attributes(value)
		attr, ok := setNameAttribute(e.Text(unix.NFTA_EXPR_NAME))
		if !ok {
			return
		}
		delete(unused, attributes(e.Get(unix.NFTA_EXPR_DATA)).Text(attr))
	})
}
