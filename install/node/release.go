package node

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// Released computes what the configuration directory should be like without us: the original bytes
// where no other process wrote, else today's bytes without our element. Plugins in whose place ours
// came get it back if their executable is there.
func Released(s Settings, f Found) State {
	var state State
	names := maps.Clone(f.Entries)
	for name := range f.Files {
		names[name] = journal.Entry{}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, recorded := f.Entries[name]; recorded || f.carries(name, s.Type) {
			state.Files = append(state.Files, release(s, f, name)...)
		}
	}
	return state
}

// release takes us out of one file.
func release(s Settings, f Found, name string) []Target {
	file, exists := f.Files[name]
	e, recorded := f.Entries[name]
	t := Target{Name: name, Was: file.Data, Content: file.Data, Mode: file.Mode, Forget: recorded}
	if !exists || file.Err != nil {
		t.Was, t.Content = nil, nil
		return []Target{t} // whoever removed it wanted it gone
	}
	ours, carries := recorded && e.Wrote(file.Data), f.carries(name, s.Type)
	switch {
	case !ours && !carries:
		return []Target{t} // others have made it theirs
	case recorded && e.Kind == journal.Converted:
		return releaseConverted(s, f, t, e, ours)
	case recorded && e.Kind == journal.Edited && ours:
		t.Content, t.Mode = giveBack(f, without(e.Original, unusable(s, f)), e), e.Mode
	case recorded && e.Kind == journal.Created, name == s.IstioOwnedCNIConfigFileName, filepath.Ext(name) != ".conflist":
		t.Content = nil
	default:
		t.Content = takeOut(s, f, file.Data, e)
	}
	return []Target{t}
}

// releaseConverted brings a plain configuration back, first, since it comes before the list.
func releaseConverted(s Settings, f Found, t Target, e journal.Entry, ours bool) []Target {
	if !ours {
		t.Content = takeOut(s, f, t.Was, e)
		return []Target{t}
	}
	t.Content = nil
	if _, back := f.Files[e.From]; back {
		return []Target{t}
	}
	return []Target{{Name: e.From, Content: e.Original, Mode: e.Mode}, t}
}

// takeOut returns a list that others wrote without our element, and with those that ours had
// displaced.
func takeOut(s Settings, f Found, data []byte, e journal.Entry) []byte {
	return giveBack(f, without(data, []string{s.Type}), e)
}

// giveBack puts the elements that ours had displaced into a list that does not have them.
func giveBack(f Found, data []byte, e journal.Entry) []byte {
	for _, raw := range e.Taken {
		list, err := chain.Parse(data)
		if err != nil {
			return data
		}
		plugin := chain.PlainType(raw)
		if !f.Executables[plugin] || list.Has(plugin) {
			continue
		}
		if with, err := list.Insert(raw); err == nil {
			data = with
		}
	}
	return data
}

// unusable are the types that cannot be given their place back, since a chain with them would fail.
func unusable(s Settings, f Found) []string {
	var types []string
	for _, plugin := range s.TakeOver {
		if !f.Executables[plugin] {
			types = append(types, plugin)
		}
	}
	return types
}

// without returns what was there before us, less the types. A plain configuration of such a type is
// not brought back.
func without(data []byte, types []string) []byte {
	list, err := chain.Parse(data)
	if err == nil {
		return list.Remove(types...)
	}
	if slices.Contains(types, chain.PlainType(data)) {
		return nil
	}
	return data
}
