package node

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// insert inserts the plugin into a configuration.
func (p *planner) insert(choice chain.Choice) {
	if choice.Plain {
		p.convert(choice)
		return
	}
	p.edit(choice.Name, choice.List, true)
}

// edit corrects the plugin's entry in a list. In the configuration in use it also removes
// conflicting plugins.
func (p *planner) edit(name string, list *chain.List, inUse bool) {
	var displaced []string
	if inUse {
		displaced = p.displaced(name, list)
	}
	now := p.found.Files[name]
	content, element := now.Data, p.element(name)
	defect := list.Inspect(p.Type, element)
	if inUse && defect == chain.NotLast && p.relaxed.Position {
		p.report(Shared, false,
			"%s insists on the last position in %s; Sluice's plugin is before it",
			list.Types()[len(list.Plugins)-1], name)
	}
	if len(displaced) > 0 || !p.acceptable(defect, inUse) {
		var err error
		if content, err = list.Insert(element, displaced...); err != nil {
			p.Problems = append(p.Problems, problemOf(err))
			return
		}
	}
	e := p.found.Entries[name]
	if !e.Wrote(now.Data) {
		e = journal.Entry{
			Kind: journal.Edited, Original: list.Remove(p.Type), Mode: now.Mode, Taken: e.Taken,
		}
	}
	e.Taken = taken(e.Taken, list, displaced)
	p.want(Target{Name: name, Was: now.Data, Content: content, Mode: now.Mode}, e)
}

// acceptable reports whether a defect may remain. In configurations after the one in use, only
// harmful defects are corrected.
func (p *planner) acceptable(d chain.Defect, inUse bool) bool {
	return d == chain.None || d == chain.NotLast && (p.relaxed.Position || !inUse)
}

// element returns the plugin's element for a file: the existing one while the executable for which
// it was written is installed.
func (p *planner) element(name string) json.RawMessage {
	if p.relaxed.Outdated {
		if list, err := chain.Parse(p.found.Files[name].Data); err == nil && list.Has(p.Type) {
			return list.Elements(p.Type)[0].Raw
		}
	}
	return p.Element
}

// convert replaces a plain configuration by a list. The list is complete before the plain file is
// removed, which is used until then.
func (p *planner) convert(choice chain.Choice) {
	name, ok := p.converted(choice.Name)
	if !ok {
		name = chain.ListName(choice.Name, func(name string) bool {
			_, exists := p.found.Files[name]
			return exists
		})
	}
	content, err := choice.List.Insert(p.element(name), p.displaced(choice.Name, choice.List)...)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	plain, now := p.found.Files[choice.Name], p.found.Files[name]
	if p.want(Target{Name: name, Was: now.Data, Content: content, Mode: plain.Mode}, journal.Entry{
		Kind: journal.Converted, From: choice.Name, Original: plain.Data, Mode: plain.Mode,
		Written: p.found.Entries[name].Written,
	}) {
		p.Files = append(p.Files, Target{Name: choice.Name, Was: plain.Data})
		p.Primary = name
	}
}

// converted returns the list that replaced a plain configuration earlier, if it is unchanged.
func (p *planner) converted(plain string) (string, bool) {
	for name, e := range p.found.Entries {
		if now, exists := p.found.Files[name]; exists && e.Kind == journal.Converted &&
			e.From == plain && e.Wrote(now.Data) {
			return name, true
		}
	}
	return "", false
}

// want adds a target and its record. Nothing is wanted that would put the plugin onto the node
// while it could not work: then it returns false.
func (p *planner) want(t Target, e journal.Entry) bool {
	if p.held(t.Name) {
		return false
	}
	if old, recorded := p.found.Entries[t.Name]; !t.done() || !recorded ||
		!bytes.Equal(old.Original, e.Original) {
		next := e.Writing(t.Was, t.Content)
		t.Entry = &next
	}
	p.Files = append(p.Files, t)
	return true
}

// held calls the gate, unless the plugin is already on the node: removing it would let pods start
// without redirection.
func (p *planner) held(name string) bool {
	if p.Gate == nil || len(p.found.Entries) > 0 {
		return false
	}
	for file := range p.found.Files {
		if p.found.carries(file, p.Type) {
			return false
		}
	}
	err := p.Gate()
	if err != nil {
		p.report(HeldBack, true, "the plugin is not put into %s yet: %v", name, err)
	}
	return err != nil
}

// taken returns the elements that were replaced before, and those that the change replaces.
func taken(before [][]byte, list *chain.List, displaced []string) [][]byte {
	taken := slices.Clone(before)
	for _, plugin := range list.Plugins {
		known := func(raw []byte) bool { return chain.PlainType(raw) == plugin.Type }
		if slices.Contains(displaced, plugin.Type) {
			taken = append(slices.DeleteFunc(taken, known), plugin.Raw)
		}
	}
	return taken
}

// displaced returns the types in a list that the plugin replaces.
func (p *planner) displaced(name string, list *chain.List) []string {
	var types []string
	for _, plugin := range list.Plugins {
		if !slices.Contains(p.TakeOver, plugin.Type) || slices.Contains(types, plugin.Type) {
			continue
		}
		var mode struct {
			Ambient bool `json:"ambient_enabled"`
		}
		switch err := json.Unmarshal(plugin.Raw, &mode); {
		case err == nil && mode.Ambient:
			p.report(Shared, false,
				"%s in %s serves ambient mode and stays in the chain; both plugins run",
				plugin.Type, name)
		case p.relaxed.Together && list.Has(p.Type):
			p.report(Shared, false,
				"%s is added to %s repeatedly: uninstall it; until then both plugins run",
				plugin.Type, name)
		default:
			types = append(types, plugin.Type)
		}
	}
	return types
}
