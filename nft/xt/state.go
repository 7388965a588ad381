package xt

import (
	"bytes"

	"github.com/sluice-mesh/sluice/rules"
)

// States of [rules.Unknown] that xtables has: a list of recent, the counts of hashlimit and an
// object of nfnetlink_acct by their names; and all rates, all sets of addresses, since one may hold
// others, and the labels of a connection.
const (
	StateOfRates  = "rateest"
	StateOfSets   = "ipset"
	StateOfLabels = "ct label"
)

// StateOfRecent names the state of a list of recent.
func StateOfRecent(name string) string { return "recent " + name }

// StateOfHashLimit names the state of the rules of hashlimit with that name.
func StateOfHashLimit(name string) string { return "hashlimit " + name }

// StateOfAccount names the state of an object of nfnetlink_acct.
func StateOfAccount(name string) string { return "nfacct " + name }

// Flags of check_set in struct xt_recent_mtinfo, and where it is: behind two numbers. A name and
// the side follow it.
const (
	recentSet     = 1 << 1
	recentUpdate  = 1 << 2
	recentRemove  = 1 << 3
	recentReap    = 1 << 5
	recentFlagsAt = 8
	recentNameAt  = 10
)

// labelSet is the flag of struct xt_connlabel_mtinfo that labels, and labelFlagsAt where the flags
// are.
const labelSet, labelFlagsAt = 1 << 1, 2

// withState adds the state to an unknown match, and says whether the match writes to it.
func withState(u rules.Unknown, x Extension) rules.Unknown {
	if u.Effect == rules.Anything {
		return u
	}
	name := func(at int) string {
		text, _, _ := bytes.Cut(x.Data[min(at, len(x.Data)):], []byte{0})
		return string(text)
	}
	switch x.Name {
	case "recent":
		if len(x.Data) < recentNameAt {
			return rules.Unknown{Text: u.Text, Data: u.Data}
		}
		u.State = StateOfRecent(name(recentNameAt))
		switch flags, inverted := x.Data[recentFlagsAt], x.Data[recentFlagsAt+1] != 0; {
		case flags&recentSet != 0 && !inverted:
			u.Effect = rules.Writes
		case flags&(recentSet|recentUpdate|recentRemove|recentReap) != 0:
			u.Effect = rules.Records
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
		if len(x.Data) <= labelFlagsAt || x.Data[labelFlagsAt]&labelSet != 0 {
			u.Effect = rules.Records
		}
	}
	return u
}
