package diff

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// loopback is the interface of the packets that a host sends to itself.
const loopback = "lo"

// A deviceClass is the interfaces that no rule can tell apart.
type deviceClass struct {
	// example is the name of one of them.
	example string
	// name is what they have in common: a name, a prefix, or "" for those that no rule names.
	name rules.InterfaceName
}

// longestName is how long the name of an interface can be (IFNAMSIZ, with its end).
const longestName = 15

// deviceClasses returns the classes for the names in rules: lo, each name, the rest of each prefix, and the rest of all.
func deviceClasses(names []rules.InterfaceName) []deviceClass {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b rules.InterfaceName) int { return strings.Compare(a.String(), b.String()) })
	names = slices.Compact(names)
	var classes []deviceClass
	seen := map[string]bool{}
	// A class is known by which names stand for its interfaces; lo is apart from all, for what leaves by it comes back.
	try := func(example string, name rules.InterfaceName) {
		if example == "" || len(example) > longestName {
			return
		}
		signature := make([]byte, len(names)+1)
		for i, n := range names {
			if n.Contains(example) {
				signature[i] = 1
			}
		}
		if example == loopback {
			signature[len(names)] = 1
		}
		if !seen[string(signature)] {
			seen[string(signature)] = true
			classes = append(classes, deviceClass{example, name})
		}
	}
	try(loopback, rules.InterfaceName{Name: loopback})
	for _, n := range names {
		if !n.Prefix {
			try(n.Name, n)
		}
	}
	// The longest prefix comes first: what is left for a shorter one is not of the longer.
	for _, n := range slices.Backward(names) {
		if n.Prefix {
			for _, example := range extensions(n.Name) {
				try(example, n)
			}
		}
	}
	for _, example := range append([]string{"eth0", "net1"}, extensions("")...) {
		try(example, rules.InterfaceName{})
	}
	return classes
}

// extensions are names that begin with the prefix: more of them than rules are likely to name.
func extensions(prefix string) []string {
	var names []string
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyz" {
		names = append(names, prefix+string(c))
	}
	for _, name := range slices.Clone(names) {
		names = append(names, name+"0")
	}
	return append(names, prefix)
}

// interfaceNames are those that occur in the rulesets.
func interfaceNames(rulesets ...rules.Ruleset) []rules.InterfaceName {
	var names []rules.InterfaceName
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				for _, r := range c.Rules {
					for _, m := range r.Matches {
						if m, ok := m.(rules.MatchInterface); ok {
							names = append(names, m.Names...)
						}
					}
				}
			}
		}
	}
	return names
}
