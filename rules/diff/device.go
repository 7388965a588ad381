package diff

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// loopback is the interface of packets from the host to itself.
const loopback = "lo"

// An interfaceClass is a set of interfaces that the rules treat identically.
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

// devices contains the interface classes that the compared rulesets distinguish.
type devices struct {
	// classes are sorted by their examples. Therefore the classes of a prefix are adjacent.
	classes []interfaceClass
	// named contains the names, and prefixed the prefixes, in the rules.
	named, prefixed map[string]bool
}

// interfaceClasses returns the classes for the names in the rules: lo, each name, the remaining
// names of each prefix, and all remaining names.
func interfaceClasses(names []rules.InterfaceName, m *meter) *devices {
	d := &devices{named: map[string]bool{}, prefixed: map[string]bool{}}
	for _, n := range names {
		m.step()
		known := d.named
		if n.Prefix {
			known = d.prefixed
		}
		if !known[n.Name] {
			m.alloc(textEntrySize)
			known[n.Name] = true
		}
	}
	d.add(loopback, rules.InterfaceName{Name: loopback})
	for n := range d.named {
		if n != loopback && isInterfaceName(n) {
			d.add(n, rules.InterfaceName{Name: n})
		}
	}
	for n := range d.prefixed {
		if !beginsInterfaceName(n) {
			continue
		}
		if example, ok := d.unusedName(n, m); ok {
			d.add(example, rules.InterfaceName{Name: n, Prefix: true})
		}
	}
	if !d.prefixed[""] {
		d.addRest(m)
	}
	slices.SortFunc(d.classes, func(a, b interfaceClass) int {
		return strings.Compare(a.example, b.example)
	})
	if len(d.classes) > maxClasses {
		m.exhaust(fmt.Sprintf("more than %d distinct interface names and prefixes", maxClasses))
	}
	return d
}

// isInterfaceName reports whether an interface can have the name: dev_valid_name in net/core/dev.c.
// iptables-nft uses the name INVAL/D in rules that match no packet.
func isInterfaceName(name string) bool {
	return name != "" && len(name) <= maxNameLen && name != "." && name != ".." &&
		beginsInterfaceName(name)
}

// beginsInterfaceName reports whether an interface name can begin with the text: whether all its
// bytes are allowed. Of the bytes above 0x7f, the kernel treats only 0xa0 as a space (lib/ctype.c).
func beginsInterfaceName(text string) bool {
	for i := range len(text) {
		if strings.IndexByte("/: \t\n\v\f\r\xa0", text[i]) >= 0 {
			return false
		}
	}
	return true
}

// add adds a class of interfaces with the name or prefix.
func (d *devices) add(example string, name rules.InterfaceName) {
	d.classes = append(d.classes, interfaceClass{example, name})
}

// addRest adds the class of the interfaces that no rule names.
func (d *devices) addRest(m *meter) {
	for _, typical := range []string{"eth0", "net1"} {
		if _, prefixed := d.longestPrefix(typical); !prefixed && !d.named[typical] {
			d.add(typical, rules.InterfaceName{})
			return
		}
	}
	if example, ok := d.unusedName("", m); ok {
		d.add(example, rules.InterfaceName{})
	}
}

// unusedName returns an interface name that has the prefix, that no rule contains, and that no rule
// matches by a longer prefix.
func (d *devices) unusedName(prefix string, m *meter) (string, bool) {
	const characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	isFree := func(name string) bool {
		return !d.named[name] && name != loopback && isInterfaceName(name)
	}
	for queue := []string{prefix}; len(queue) > 0; queue = queue[1:] {
		for _, c := range characters {
			m.step()
			name := queue[0] + string(c)
			switch {
			case len(name) > maxNameLen || d.prefixed[name]:
				// No longer name is possible, or the name begins with a longer prefix.
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
func (d *devices) longestPrefix(name string) (prefix string, ok bool) {
	for n := len(name); n >= 0; n-- {
		if d.prefixed[name[:n]] {
			return name[:n], true
		}
	}
	return "", false
}

// classOf returns the index of the class that contains the interface. It returns -1 if there is
// none, for example because the name is invalid.
func (d *devices) classOf(device string) int {
	name := rules.InterfaceName{Name: device}
	if !d.named[device] && device != loopback {
		name.Name, name.Prefix = d.longestPrefix(device)
	}
	return slices.IndexFunc(d.classes, func(c interfaceClass) bool { return c.name == name })
}

// classSpans returns the index ranges of the classes whose interfaces match one of the names.
func (d *devices) classSpans(names []rules.InterfaceName) []span {
	var found []span
	for _, n := range names {
		from := d.firstIndex(n.Name)
		end := from
		switch {
		case n.Prefix:
			end = from + sort.Search(len(d.classes)-from, func(i int) bool {
				return !strings.HasPrefix(d.classes[from+i].example, n.Name)
			})
		case from < len(d.classes) && d.classes[from].example == n.Name:
			end++
		}
		if from < end {
			found = append(found, span{number(uint32(from)), number(uint32(end - 1))})
		}
	}
	return mergeSpans(found)
}

// firstIndex returns the index of the first class whose example is not less than the name.
func (d *devices) firstIndex(name string) int {
	return sort.Search(len(d.classes), func(i int) bool { return d.classes[i].example >= name })
}
