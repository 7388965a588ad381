package node

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// Released returns the state of the configuration directory without Sluice. Files that the agent
// created are removed, unless another program has replaced their content. Edited files that no
// other program has changed get their original bytes; other files keep their current bytes without
// Sluice's element. Files that cannot be read, and invalid files that name the plugin, do not
// change, and neither do their journal entries. Plugins that Sluice's plugin replaced are inserted
// again if their executable exists, and otherwise left out.
func Released(s Settings, found Actual) State {
	var state State
	names := slices.AppendSeq(slices.Sorted(maps.Keys(found.Entries)), maps.Keys(found.Files))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if _, hasEntry := found.Entries[name]; hasEntry || found.hasPlugin(name, s.Type) {
			state.Files = append(state.Files, release(s, found, name)...)
		}
	}
	return state
}

// release returns the targets that remove the plugin from one file.
func release(s Settings, found Actual, name string) []Target {
	file, exists := found.Files[name]
	e, hasEntry := found.Entries[name]
	t := Target{
		Name: name, Current: file.Data, Content: file.Data, Mode: file.Mode, Forget: hasEntry,
	}
	switch {
	case file.Err != nil:
		// The file stays as it is, and so does its journal entry: the file may still contain the
		// plugin, and its original content is needed as soon as it can be read.
		return nil
	case !exists:
		t.Current, t.Content = nil, nil
		return []Target{t}
	case !isValid(name, file) && chain.Mentions(file.Data, s.Type):
		return nil // after a correction, the file contains the plugin again
	}
	unchanged, hasPlugin := hasEntry && e.WrittenByAgent(file.Data), found.hasPlugin(name, s.Type)
	switch {
	case !unchanged && !hasPlugin:
		return []Target{t} // another program replaced the content
	case hasEntry && e.Kind == journal.Converted:
		return releaseConverted(s, found, t, e, unchanged)
	case hasEntry && e.Kind == journal.Edited && unchanged:
		t.Content = reinsertReplaced(found, removeTypes(e.Original, typesWithoutExecutable(s, found)), e)
		t.Mode = e.Mode
	case hasEntry && e.Kind == journal.Created,
		// Without an entry, the journal was lost, and a file with this name is the agent's copy.
		// With an entry of another kind, the file belongs to another program.
		!hasEntry && name == s.IstioOwnedCNIConfigFileName,
		filepath.Ext(name) != ".conflist":
		t.Content = nil
	default:
		t.Content = removePlugin(s, found, file.Data, e)
	}
	return []Target{t}
}

// isValid reports whether runtimes accept a configuration.
func isValid(name string, file File) bool {
	_, err := chain.Read(chain.File{Name: name, Data: file.Data, Err: file.Err})
	return err == nil
}

// releaseConverted returns the targets that restore a single-plugin configuration and then remove
// the list that replaced it. unchanged means that no other program has changed the list; otherwise
// only the plugin is removed from it.
func releaseConverted(s Settings, found Actual, t Target, e journal.Entry, unchanged bool) []Target {
	if !unchanged {
		t.Content = removePlugin(s, found, t.Current, e)
		return []Target{t}
	}
	t.Content = nil
	if _, exists := found.Files[e.From]; exists {
		return []Target{t}
	}
	return []Target{{Name: e.From, Content: e.Original, Mode: e.Mode}, t}
}

// removePlugin returns the text of a list that another program has changed, without Sluice's
// element. It inserts the elements that Sluice's element replaced; see reinsertReplaced.
func removePlugin(s Settings, found Actual, data []byte, e journal.Entry) []byte {
	return reinsertReplaced(found, removeTypes(data, []string{s.Type}), e)
}

// reinsertReplaced inserts into a list each element that Sluice's element replaced, if the
// executable of its plugin exists and the list does not contain the plugin.
func reinsertReplaced(found Actual, data []byte, e journal.Entry) []byte {
	for _, raw := range e.Replaced {
		list, err := chain.Parse(data)
		if err != nil {
			return data
		}
		plugin := chain.TypeOf(raw)
		if !found.Executables[plugin] || list.Has(plugin) {
			continue
		}
		if extended, err := list.Insert(raw); err == nil {
			data = extended
		}
	}
	return data
}

// typesWithoutExecutable returns the replaced types without an executable. A chain that contains
// them would fail.
func typesWithoutExecutable(s Settings, found Actual) []string {
	var types []string
	for _, plugin := range s.ReplacedTypes {
		if !found.Executables[plugin] {
			types = append(types, plugin)
		}
	}
	return types
}

// removeTypes returns a configuration without elements of the types. The result is nil for a
// single-plugin configuration of such a type.
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
