package xt

import "github.com/sluice-mesh/sluice/rules"

// Values of [rules.Unknown.State] for matches of xtables. All rates of rateest share one state, and
// so do all connection labels. All sets share one state too, because a set may contain other sets.
// The lists of recent, the hash tables of hashlimit and the objects of nfnetlink_acct have one
// state for each name.
const (
	StateOfRates  = "rateest"
	StateOfSets   = "ipset"
	StateOfLabels = "ct label"
)

// StateOfRecent returns the state of a list of recent.
func StateOfRecent(name string) string { return "recent " + name }

// StateOfHashLimit returns the state of a hash table of hashlimit.
func StateOfHashLimit(name string) string { return "hashlimit " + name }

// StateOfAccount returns the state of an object of nfnetlink_acct.
func StateOfAccount(name string) string { return "nfacct " + name }

// Flags of check_set in struct xt_recent_mtinfo, and the offsets of check_set and of the name.
const (
	recentSet         = 1 << 1
	recentUpdate      = 1 << 2
	recentRemove      = 1 << 3
	recentTTL         = 1 << 4
	recentReap        = 1 << 5
	recentFlagsOffset = 8
	recentNameOffset  = 10
)

// labelSet is the flag of struct xt_connlabel_mtinfo that sets a label, and labelFlagsOffset the
// offset of the flags.
const labelSet, labelFlagsOffset = 1 << 1, 2

// withState returns the unknown match u of x with its state, and with the effect on the state.
func withState(u rules.Unknown, x Extension) rules.Unknown {
	if u.Effect == rules.AnyEffect {
		return u
	}
	name := func(offset int) string { return textBeforeZero(x.Data[min(offset, len(x.Data)):]) }
	switch x.Name {
	case "recent":
		if len(x.Data) < recentNameOffset {
			return rules.Unknown{Text: u.Text, Data: u.Data}
		}
		u.State = StateOfRecent(name(recentNameOffset))
		switch flags, inverted := x.Data[recentFlagsOffset], x.Data[recentFlagsOffset+1] != 0; {
		case flags&recentSet != 0 && !inverted:
			u.Effect = rules.Writes // --set matches every packet
		case flags&(recentSet|recentUpdate|recentRemove|recentReap) != 0:
			u.Effect = rules.ReadsAndWrites
		}
	case "hashlimit":
		u.State = StateOfHashLimit(name(0))
	case "nfacct":
		u.State = StateOfAccount(name(0))
	case "rateest":
		u.State = StateOfRates
	case "set":
		u.State = StateOfSets
	case "connlabel":
		u.State = StateOfLabels
		if len(x.Data) <= labelFlagsOffset || x.Data[labelFlagsOffset]&labelSet != 0 {
			u.Effect = rules.ReadsAndWrites
		}
	}
	return u
}
