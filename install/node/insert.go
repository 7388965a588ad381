package node

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// insert inserts the plugin into a configuration.
func (p *planner) insert(choice chain.Choice) {
	if choice.SinglePlugin {
		p.convert(choice)
		return
	}
	p.edit(choice.Name, choice.List, true)
}

// edit inserts the plugin's element into a list, or corrects it. In the configuration in use it
// also removes the plugins that Sluice's plugin replaces.
func (p *planner) edit(name string, list *chain.List, inUse bool) {
	var types []string
	if inUse {
		types = p.replacedTypes(name, list)
	}
	current := p.found.Files[name]
	content, element := current.Data, p.element(name)
	defect := list.Inspect(p.Type, element)
	if inUse && defect == chain.NotLast && p.relaxed.Position {
		p.report(OtherPluginStays, false,
			"another program keeps plugin %s last in %s; Sluice's plugin runs before it",
			list.Types()[len(list.Plugins)-1], name)
	}
	if len(types) > 0 || !p.isAcceptable(defect, inUse) {
		var err error
		if content, err = list.Insert(element, types...); err != nil {
			p.Problems = append(p.Problems, problemOf(err))
			return
		}
	}
	e := p.found.Entries[name]
	if !e.WrittenByAgent(current.Data) {
		e = journal.Entry{
			Kind: journal.Edited, Original: list.Remove(p.Type), Mode: current.Mode,
			Replaced: e.Replaced,
		}
	}
	e.Replaced = replacedElements(e.Replaced, list, types)
	p.addTarget(Target{Name: name, Current: current.Data, Content: content, Mode: current.Mode}, e)
}

// isAcceptable reports whether a defect may remain. The plugin need not be last in a configuration
// that is not in use.
func (p *planner) isAcceptable(d chain.Defect, inUse bool) bool {
	return d == chain.None || d == chain.NotLast && (p.relaxed.Position || !inUse)
}

// element returns the plugin's element for a file. While the executable of another version is
// installed, it returns the element in the file or, if the file has lost it, in the journal, which
// was written for that version.
func (p *planner) element(name string) json.RawMessage {
	if !p.relaxed.KeepElement {
		return p.Element
	}
	if list, err := chain.Parse(p.found.Files[name].Data); err == nil && list.Has(p.Type) {
		return list.Elements(p.Type)[0].Raw
	}
	if p.found.InstalledElement != nil {
		return p.found.InstalledElement
	}
	return p.Element
}

// convert replaces a single-plugin configuration with a list. The single-plugin file, which sorts
// before the list, is removed after the list has been written.
func (p *planner) convert(choice chain.Choice) {
	name, ok := p.convertedName(choice.Name)
	if !ok {
		name = chain.ListName(choice.Name, slices.Collect(maps.Keys(p.found.Files)))
	}
	types := p.replacedTypes(choice.Name, choice.List)
	content, err := choice.List.Insert(p.element(name), types...)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	single, current := p.found.Files[choice.Name], p.found.Files[name]
	target := Target{Name: name, Current: current.Data, Content: content, Mode: single.Mode}
	if p.addTarget(target, journal.Entry{
		Kind: journal.Converted, From: choice.Name, Original: single.Data, Mode: single.Mode,
		Written: p.found.Entries[name].Written,
	}) {
		p.Files = append(p.Files, Target{Name: choice.Name, Current: single.Data})
		p.Primary = name
	}
}

// convertedName returns the name of the list that replaced a single-plugin configuration earlier.
// It returns false if there is none, or if another program has changed it.
func (p *planner) convertedName(single string) (string, bool) {
	for name, e := range p.found.Entries {
		if current, exists := p.found.Files[name]; exists && e.Kind == journal.Converted &&
			e.From == single && e.WrittenByAgent(current.Data) {
			return name, true
		}
	}
	return "", false
}

// addTarget adds a target and its journal entry. If the target would insert the plugin for the
// first time while ReadyToInsert fails, addTarget adds nothing and returns false.
func (p *planner) addTarget(t Target, e journal.Entry) bool {
	if p.isInsertionBlocked(t.Name) {
		return false
	}
	if old, hasEntry := p.found.Entries[t.Name]; !t.isDone() || !hasEntry ||
		!bytes.Equal(old.Original, e.Original) {
		next := e.WithChange(t.Current, t.Content)
		t.Entry = &next
	}
	p.Files = append(p.Files, t)
	return true
}

// isInsertionBlocked reports whether ReadyToInsert fails, and adds its error as a problem. If the
// plugin is in a configuration, or the journal has an entry of a configuration, it returns false
// without calling ReadyToInsert, because the plugin must stay in the chain.
func (p *planner) isInsertionBlocked(name string) bool {
	if p.ReadyToInsert == nil || len(p.found.Entries) > 0 {
		return false
	}
	for file := range p.found.Files {
		if p.found.hasPlugin(file, p.Type) {
			return false
		}
	}
	err := p.ReadyToInsert()
	if err != nil {
		p.report(NotReadyToInsert, true, "the plugin is not inserted into %s yet: %v", name, err)
	}
	return err != nil
}

// replacedElements returns the elements that earlier changes replaced, and the elements that this
// change replaces. For each type it returns only the last element.
func replacedElements(earlier [][]byte, list *chain.List, types []string) [][]byte {
	replaced := slices.Clone(earlier)
	for _, plugin := range list.Plugins {
		sameType := func(raw []byte) bool { return chain.TypeOf(raw) == plugin.Type }
		if slices.Contains(types, plugin.Type) {
			replaced = append(slices.DeleteFunc(replaced, sameType), plugin.Raw)
		}
	}
	return replaced
}

// replacedTypes returns the types in a list that the plugin replaces. It reports each plugin that
// stays although its type is in the setting ReplacedTypes.
func (p *planner) replacedTypes(name string, list *chain.List) []string {
	var types []string
	for _, plugin := range list.Plugins {
		if !slices.Contains(p.ReplacedTypes, plugin.Type) || slices.Contains(types, plugin.Type) {
			continue
		}
		var element struct {
			Ambient bool `json:"ambient_enabled"`
		}
		switch err := json.Unmarshal(plugin.Raw, &element); {
		case err == nil && element.Ambient:
			p.report(OtherPluginStays, false,
				"%s in %s serves ambient mode and stays in the chain; both plugins run",
				plugin.Type, name)
		case p.relaxed.KeepReplaced && list.Has(p.Type):
			p.report(OtherPluginStays, false, "another program keeps adding plugin %s to %s: "+
				"uninstall that program; until then both plugins run", plugin.Type, name)
		default:
			types = append(types, plugin.Type)
		}
	}
	return types
}
