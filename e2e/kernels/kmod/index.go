package kmod

import (
	"fmt"
	"slices"
)

// An Index is a set of modules.
type Index []Module

// Only returns the modules for which matches returns true, and their dependencies.
func (ix Index) Only(matches func(Module) bool) Index {
	included := map[string]bool{}
	var include func(name string)
	include = func(name string) {
		m, exists := ix.named(name)
		if !exists || included[name] {
			return
		}
		included[name] = true
		for _, dependency := range m.Needs {
			include(dependency)
		}
	}
	for _, m := range ix {
		if matches(m) {
			include(m.Name)
		}
	}
	return ix.filter(func(m Module) bool { return included[m.Name] })
}

// Without returns the index without the named modules and the modules that depend on them.
func (ix Index) Without(names ...string) Index {
	removed := map[string]bool{}
	for _, name := range names {
		removed[name] = true
	}
	needsRemoved := func(m Module) bool {
		return slices.ContainsFunc(m.Needs, func(dependency string) bool {
			return removed[dependency]
		})
	}
	// Repeat until no further module depends on a removed one.
	for before := -1; len(removed) != before; {
		before = len(removed)
		for _, m := range ix {
			if needsRemoved(m) {
				removed[m.Name] = true
			}
		}
	}
	return ix.filter(func(m Module) bool { return !removed[m.Name] })
}

// Order returns the modules to load for the name or alias of a module, dependencies first. It
// returns no modules for an unknown name, and an error for a missing dependency.
func (ix Index) Order(nameOrAlias string) ([]Module, error) {
	nameOrAlias = withUnderscores(nameOrAlias)
	var order []Module
	var add func(m Module) error
	add = func(m Module) error {
		if slices.ContainsFunc(order, func(o Module) bool { return o.Name == m.Name }) {
			return nil
		}
		for _, name := range m.Needs {
			dependency, exists := ix.named(name)
			if !exists {
				return fmt.Errorf("module %s needs module %s, which is missing", m.Name, name)
			}
			if err := add(dependency); err != nil {
				return err
			}
		}
		order = append(order, m)
		return nil
	}
	for _, m := range ix {
		if m.Name == nameOrAlias || slices.Contains(m.Aliases, nameOrAlias) {
			if err := add(m); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// named returns the module with the name, or false.
func (ix Index) named(name string) (Module, bool) {
	i := slices.IndexFunc(ix, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return Module{}, false
	}
	return ix[i], true
}

// filter returns the modules for which matches returns true.
func (ix Index) filter(matches func(Module) bool) Index {
	return slices.DeleteFunc(slices.Clone(ix), func(m Module) bool { return !matches(m) })
}
