package node

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// Released computes the state of the configuration directory without Sluice: the original bytes of
// files that no other program changed, otherwise the current bytes without Sluice's element.
// Plugins that Sluice's plugin replaced are inserted again if their executable exists.
func Released(s Settings, f Actual) State {
	var state State
	names := maps.Clone(f.Entries)
	for name := range f.Files {
		names[name] = journal.Entry{}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, hasEntry := f.Entries[name]; hasEntry || f.hasPlugin(name, s.Type) {
			state.Files = append(state.Files, release(s, f, name)...)
		}
	}
	return state
}

// release removes the plugin from one file.
func release(s Settings, f Actual, name string) []Target {
	file, exists := f.Files[name]
	e, hasEntry := f.Entries[name]
	t := Target{Name: name, Current: file.Data, Content: file.Data, Mode: file.Mode, Forget: hasEntry}
	if !exists || file.Err != nil {
		t.Current, t.Content = nil, nil
		return []Target{t} // a removed file is not restored
	}
	unchanged, hasPlugin := hasEntry && e.WrittenByAgent(file.Data), f.hasPlugin(name, s.Type)
	switch {
	case !unchanged && !hasPlugin:
		return []Target{t} // another program replaced the content
	case hasEntry && e.Kind == journal.Converted:
		return releaseConverted(s, f, t, e, unchanged)
	case hasEntry && e.Kind == journal.Edited && unchanged:
		t.Content, t.Mode = reinsertReplaced(f, removeTypes(e.Original, typesNotExecutable(s, f)), e), e.Mode
	case hasEntry && e.Kind == journal.Created, name == s.IstioOwnedCNIConfigFileName, filepath.Ext(name) != ".conflist":
		t.Content = nil
	default:
		t.Content = removePlugin(s, f, file.Data, e)
	}
	return []Target{t}
}

// releaseConverted restores a single-plugin configuration before it removes the list that replaced
// it, because it sorts before the list. unchanged reports that no other program changed the list.
func releaseConverted(s Settings, f Actual, t Target, e journal.Entry, unchanged bool) []Target {
	if !unchanged {
		t.Content = removePlugin(s, f, t.Current, e)
		return []Target{t}
	}
	t.Content = nil
	if _, exists := f.Files[e.From]; exists {
		return []Target{t}
	}
	return []Target{{Name: e.From, Content: e.Original, Mode: e.Mode}, t}
}

// removePlugin returns a list that another program changed, without Sluice's element and with the
// elements that it replaced.
func removePlugin(s Settings, f Actual, data []byte, e journal.Entry) []byte {
	return reinsertReplaced(f, removeTypes(data, []string{s.Type}), e)
}

// reinsertReplaced inserts the elements that Sluice's element replaced into a list that does not
// contain them.
func reinsertReplaced(f Actual, data []byte, e journal.Entry) []byte {
	for _, raw := range e.Replaced {
		list, err := chain.Parse(data)
		if err != nil {
			return data
		}
		plugin := chain.TypeOf(raw)
		if !f.Executables[plugin] || list.Has(plugin) {
			continue
		}
		if extended, err := list.Insert(raw); err == nil {
			data = extended
		}
	}
	return data
}

// typesNotExecutable returns the replaced types without an executable: a chain with them would
// fail.
func typesNotExecutable(s Settings, f Actual) []string {
	var types []string
	for _, plugin := range s.ReplacedTypes {
		if !f.Executables[plugin] {
			types = append(types, plugin)
		}
	}
	return types
}

// removeTypes returns the original content without elements of the types; nil for a single-plugin
// configuration of such a type.
func removeTypes(data []byte, types []string) []byte {
	list, err := chain.Parse(data)
	if err == nil {
		return list.Remove(types...)
	}
	if slices.Contains(types, chain.TypeOf(data)) {
		return nil
	}
	return data
}
