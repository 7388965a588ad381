package diff

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// loopback is the interface of packets from the host to itself.
const loopback = "lo"

// An interfaceClass is a set of interfaces that no rule distinguishes.
type interfaceClass struct {
	// example is the name of an interface of the class.
	example string
	// name is the name or prefix in the rules that defines the class; empty for the interfaces that
	// no rule names.
	name rules.InterfaceName
}

// maxNameLen is the maximum length of an interface name (IFNAMSIZ without the terminating byte).
const maxNameLen = 15

// maxClasses is the number of classes that the interface field of a packet can represent.
const maxClasses = 1 << 16

// interfaceClasses contains the interface classes that the compared rulesets distinguish.
type interfaceClasses struct {
	// classes are sorted by their examples. Therefore the classes of a prefix are adjacent.
	classes []interfaceClass
	// named and prefixed contain the names and the prefixes in the rules.
	named, prefixed map[string]bool
}

// newInterfaceClasses returns the classes for the names and prefixes in the rules: one class for
// lo, one for each name, one for the remaining names with each prefix, and one for all other names.
func newInterfaceClasses(names []rules.InterfaceName, m *meter) *interfaceClasses {
	c := &interfaceClasses{named: map[string]bool{}, prefixed: map[string]bool{}}
	for _, n := range names {
		m.step()
		known := c.named
		if n.Prefix {
			known = c.prefixed
		}
		if !known[n.Name] {
			m.alloc(textEntrySize)
			known[n.Name] = true
		}
	}
	c.add(loopback, rules.InterfaceName{Name: loopback})
	for n := range c.named {
		if n != loopback && isInterfaceName(n) {
			c.add(n, rules.InterfaceName{Name: n})
		}
	}
	for n := range c.prefixed {
		if !beginsInterfaceName(n) {
			continue
		}
		if example, ok := c.unusedName(n, m); ok {
			c.add(example, rules.InterfaceName{Name: n, Prefix: true})
		}
	}
	if !c.prefixed[""] {
		c.addRest(m)
	}
	slices.SortFunc(c.classes, func(a, b interfaceClass) int {
		return strings.Compare(a.example, b.example)
	})
	if len(c.classes) > maxClasses {
		m.exhaust(fmt.Sprintf("more than %d distinct interface names and prefixes", maxClasses))
	}
	return c
}

// interfaceNames returns the names of interfaces in the rulesets. If several rules share a list of
// names, the result contains these names only once.
func interfaceNames(rulesets ...*rules.Ruleset) []rules.InterfaceName {
	var names []rules.InterfaceName
	seen := map[listKey[rules.InterfaceName]]bool{}
	for _, rs := range rulesets {
		eachMatch(rs, func(m rules.Match) {
			if i, ok := m.(rules.MatchInterface); ok && !seen[keyOf(i.Names)] {
				seen[keyOf(i.Names)] = true
				names = append(names, i.Names...)
			}
		})
	}
	return names
}

// isInterfaceName reports whether an interface can have the name (dev_valid_name in
// net/core/dev.c). iptables-nft uses the name INVAL/D in rules that match no packet.
func isInterfaceName(name string) bool {
	return name != "" && len(name) <= maxNameLen && name != "." && name != ".." &&
		beginsInterfaceName(name)
}

// beginsInterfaceName reports whether an interface name can begin with the text, because all bytes
// of the text are allowed. Of the bytes above 0x7f, the kernel treats only 0xa0 as a space
// (lib/ctype.c).
func beginsInterfaceName(text string) bool {
	for i := range len(text) {
		if strings.IndexByte("/: \t\n\v\f\r\xa0", text[i]) >= 0 {
			return false
		}
	}
	return true
}

// add adds a class of interfaces with the name or prefix.
func (c *interfaceClasses) add(example string, name rules.InterfaceName) {
	c.classes = append(c.classes, interfaceClass{example, name})
}

// addRest adds the class of the interfaces that no rule names.
func (c *interfaceClasses) addRest(m *meter) {
	for _, typical := range []string{"eth0", "net1"} {
		if _, prefixed := c.longestPrefix(typical); !prefixed && !c.named[typical] {
			c.add(typical, rules.InterfaceName{})
			return
		}
	}
	if example, ok := c.unusedName("", m); ok {
		c.add(example, rules.InterfaceName{})
	}
}

// nameBytes returns the bytes of interface names: the usual ones first, then other printable ones,
// and then all others, except the bytes that no name contains.
var nameBytes = sync.OnceValue(func() string {
	usual := "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	others := ""
	for i := range math.MaxUint8 + 1 {
		b := byte('!' + i)
		text := string([]byte{b})
		if b != 0 && beginsInterfaceName(text) && !strings.Contains(usual, text) {
			others += text
		}
	}
	return usual + others
})

// unusedName returns an interface name that has the prefix, that no rule contains, and that no rule
// matches by a longer prefix. It returns false if there is none.
func (c *interfaceClasses) unusedName(prefix string, m *meter) (string, bool) {
	isFree := func(name string) bool {
		return !c.named[name] && name != loopback && isInterfaceName(name)
	}
	bytes := nameBytes()
	for queue := []string{prefix}; len(queue) > 0; queue = queue[1:] {
		for i := range len(bytes) {
			m.step()
			name := queue[0] + bytes[i:i+1]
			switch {
			case len(name) > maxNameLen || c.prefixed[name]:
				// The name is too long, or it is a longer prefix in the rules.
			case isFree(name):
				return name, true
			default:
				queue = append(queue, name)
			}
		}
	}
	// All longer names are taken.
	return prefix, isFree(prefix)
}

// longestPrefix returns the longest prefix in the rules with which the name begins.
func (c *interfaceClasses) longestPrefix(name string) (prefix string, ok bool) {
	for n := len(name); n >= 0; n-- {
		if c.prefixed[name[:n]] {
			return name[:n], true
		}
	}
	return "", false
}

// classOf returns the index of the class that contains the interface. It returns -1 if there is
// none, for example because the name is invalid.
func (c *interfaceClasses) classOf(iface string) int {
	name := rules.InterfaceName{Name: iface}
	if !c.named[iface] && iface != loopback {
		name.Name, name.Prefix = c.longestPrefix(iface)
	}
	return slices.IndexFunc(c.classes, func(class interfaceClass) bool {
		return class.name == name
	})
}

// classSpans returns the index ranges of the classes whose interfaces match one of the names.
func (c *interfaceClasses) classSpans(names []rules.InterfaceName) []span {
	var found []span
	for _, n := range names {
		from := sort.Search(len(c.classes), func(i int) bool { return c.classes[i].example >= n.Name })
		end := from
		switch {
		case n.Prefix:
			end = from + sort.Search(len(c.classes)-from, func(i int) bool {
				return !strings.HasPrefix(c.classes[from+i].example, n.Name)
			})
		case from < len(c.classes) && c.classes[from].example == n.Name:
			end++
		}
		if from < end {
			found = append(found, span{number(uint32(from)), number(uint32(end - 1))})
		}
	}
	return mergeSpans(found)
}
