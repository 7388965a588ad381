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

// A deviceClass contains the interfaces that no rule distinguishes.
type deviceClass struct {
	// example is the name of one of them.
	example string
	// name is a name, a prefix, or "" for interfaces without a name in the rules.
	name rules.InterfaceName
}

// longestName is the maximum length of the name of an interface (IFNAMSIZ without the terminating
// byte).
const longestName = 15

// mostDevices is the number of values of the field.
const mostDevices = 1 << 16

// devices are the classes of interfaces that the rules of a decision distinguish.
type devices struct {
	// classes are sorted by their examples, so that the classes of a prefix are adjacent.
	classes []deviceClass
	// named contains the names in rules, prefixed the prefixes in rules.
	named, prefixed map[string]bool
}

// deviceClasses returns the classes for the names in rules: lo, each name, the remaining names of
// each prefix, and all remaining names.
func deviceClasses(names []rules.InterfaceName, m *meter) *devices {
	d := &devices{named: map[string]bool{}, prefixed: map[string]bool{}}
	for _, n := range names {
		m.work()
		if of := d.of(n.Prefix); !of[n.Name] {
			m.take(128)
			of[n.Name] = true
		}
	}
	d.add(loopback, rules.InterfaceName{Name: loopback})
	for n := range d.named {
		if n != loopback && n != "" && len(n) <= longestName {
			d.add(n, rules.InterfaceName{Name: n})
		}
	}
	for n := range d.prefixed {
		if example, ok := d.example(n, m); ok {
			d.add(example, rules.InterfaceName{Name: n, Prefix: true})
		}
	}
	if !d.prefixed[""] {
		d.addRest(m)
	}
	slices.SortFunc(d.classes, func(a, b deviceClass) int {
		return strings.Compare(a.example, b.example)
	})
	if len(d.classes) > mostDevices {
		m.exhaust(fmt.Sprintf("more than %d interfaces with rules of their own", mostDevices))
	}
	return d
}

func (d *devices) of(prefix bool) map[string]bool {
	if prefix {
		return d.prefixed
	}
	return d.named
}

func (d *devices) add(example string, name rules.InterfaceName) {
	d.classes = append(d.classes, deviceClass{example, name})
}

// addRest adds the class of the interfaces without a name in the rules.
func (d *devices) addRest(m *meter) {
	for _, usual := range []string{"eth0", "net1"} {
		if _, prefixed := d.longestPrefix(usual); !prefixed && !d.named[usual] {
			d.add(usual, rules.InterfaceName{})
			return
		}
	}
	if example, ok := d.example("", m); ok {
		d.add(example, rules.InterfaceName{})
	}
}

// example returns an unused name of an interface with the prefix and without a longer prefix of the
// rules.
func (d *devices) example(prefix string, m *meter) (string, bool) {
	const characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	isFree := func(name string) bool {
		return !d.named[name] && name != loopback && name != "" && name != "."
	}
	for taken := []string{prefix}; len(taken) > 0; taken = taken[1:] {
		for _, c := range characters {
			m.work()
			name := taken[0] + string(c)
			switch {
			case len(name) > longestName || d.prefixed[name]:
			case isFree(name):
				return name, true
			default:
				taken = append(taken, name)
			}
		}
	}
	return prefix, isFree(prefix) && len(prefix) <= longestName
}

// longestPrefix returns the longest prefix of the name in the rules.
func (d *devices) longestPrefix(name string) (prefix string, ok bool) {
	for n := len(name); n >= 0; n-- {
		if d.prefixed[name[:n]] {
			return name[:n], true
		}
	}
	return "", false
}

// find returns the number of the class of an interface, or -1.
func (d *devices) find(device string) int {
	name := rules.InterfaceName{Name: device}
	if !d.named[device] && device != loopback {
		name.Name, name.Prefix = d.longestPrefix(device)
	}
	return slices.IndexFunc(d.classes, func(c deviceClass) bool { return c.name == name })
}

// having returns the numbers of the classes of interfaces with one of the names.
func (d *devices) having(names []rules.InterfaceName) []span {
	var found []span
	for _, n := range names {
		from := d.search(n.Name)
		behind := from
		switch {
		case n.Prefix:
			behind = from + sort.Search(len(d.classes)-from, func(i int) bool {
				return !strings.HasPrefix(d.classes[from+i].example, n.Name)
			})
		case from < len(d.classes) && d.classes[from].example == n.Name:
			behind++
		}
		if from < behind {
			found = append(found, span{number(uint32(from)), number(uint32(behind - 1))})
		}
	}
	return union(found)
}

// search returns the number of the first class whose example is not less than the name.
func (d *devices) search(name string) int {
	return sort.Search(len(d.classes), func(i int) bool { return d.classes[i].example >= name })
}
