package kmod

import (
	"fmt"
	"slices"
)

// An Index is a set of modules.
type Index []Module

// Only returns the modules for which keep returns true, and their dependencies.
func (ix Index) Only(keep func(Module) bool) Index {
	kept := map[string]bool{}
	var take func(name string)
	take = func(name string) {
		m, ok := ix.named(name)
		if !ok || kept[name] {
			return
		}
		kept[name] = true
		for _, need := range m.Needs {
			take(need)
		}
	}
	for _, m := range ix {
		if keep(m) {
			take(m.Name)
		}
	}
	return ix.filter(func(m Module) bool { return kept[m.Name] })
}

// Without returns the index without the named modules and the modules that depend on them.
func (ix Index) Without(names ...string) Index {
	removed := map[string]bool{}
	for _, name := range names {
		removed[name] = true
	}
	for before := -1; len(removed) != before; {
		before = len(removed)
		for _, m := range ix {
			if slices.ContainsFunc(m.Needs, func(need string) bool { return removed[need] }) {
				removed[m.Name] = true
			}
		}
	}
	return ix.filter(func(m Module) bool { return !removed[m.Name] })
}

// Order returns the modules to load for the name or alias of a module, dependencies first. It
// returns none for an unknown name, and an error for a missing dependency.
func (ix Index) Order(request string) ([]Module, error) {
	request = plain(request)
	var order []Module
	var add func(m Module) error
	add = func(m Module) error {
		if slices.ContainsFunc(order, func(o Module) bool { return o.Name == m.Name }) {
			return nil
		}
		for _, name := range m.Needs {
			need, ok := ix.named(name)
			if !ok {
				return fmt.Errorf("module %s needs module %s, which is missing", m.Name, name)
			}
			if err := add(need); err != nil {
				return err
			}
		}
		order = append(order, m)
		return nil
	}
	for _, m := range ix {
		if m.Name == request || slices.Contains(m.Aliases, request) {
			if err := add(m); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

func (ix Index) named(name string) (Module, bool) {
	i := slices.IndexFunc(ix, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return Module{}, false
	}
	return ix[i], true
}

func (ix Index) filter(keep func(Module) bool) Index {
	return slices.DeleteFunc(slices.Clone(ix), func(m Module) bool { return !keep(m) })
}
