package node

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// Relaxed contains the constraints that are temporarily relaxed because they cannot be met. The
// constraint that the plugin is in the chain is never relaxed.
type Relaxed struct {
	// Position: other plugins may come after Sluice's plugin.
	Position bool
	// KeepReplaced: plugins that Sluice's plugin replaces may stay in the chain.
	KeepReplaced bool
	// KeepElement: an element of Sluice's plugin with another configuration may stay, because the
	// executable that it was written for could not be replaced.
	KeepElement bool
}

// Desired returns the desired state of the configuration directory. It has no side effects, except
// that it may call Settings.ReadyToInsert.
func Desired(s Settings, found Actual, relaxed Relaxed) State {
	p := planner{Settings: s, found: found, relaxed: relaxed}
	switch {
	case !s.Chained:
		p.planStandalone()
	case s.maintainsCopy():
		p.planCopy()
	default:
		p.planChained()
	}
	return p.State
}

// A planner computes the desired state.
type planner struct {
	Settings
	State
	found   Actual
	relaxed Relaxed
}

// planChained inserts the plugin into the chosen configuration. It also updates the plugin's
// element in other configurations that contain the plugin, because the runtime may use one of them
// after the chosen one is removed. It removes the plugin from a list whose CNI version the plugin
// does not support, because no pod would start.
func (p *planner) planChained() {
	leftovers := p.leftovers()
	files := p.found.configurations(leftovers...)
	choice, ok := p.choose(files)
	if ok {
		p.Primary, p.Plugins = choice.Name, choice.List.Types()
		p.insert(choice)
	}
	for _, name := range slices.Sorted(maps.Keys(p.found.Files)) {
		if name == p.Primary || slices.Contains(leftovers, name) || !p.found.hasPlugin(name, p.Type) {
			continue
		}
		list, err := chain.Parse(p.found.Files[name].Data)
		if err != nil {
			continue
		}
		if _, unsupported := unsupportedVersion(list); unsupported {
			p.Files = append(p.Files, release(p.Settings, p.found, name)...)
		} else {
			p.edit(name, list, false)
		}
	}
	p.releaseLeftovers(ok)
	switch {
	case ok:
		p.updatePrimary(files, choice)
	case choice.List != nil: // runtimes use this configuration
		p.Primary, p.Plugins = choice.Name, choice.List.Types()
	}
}

// releaseLeftovers removes files that the agent created with other settings. If there is no primary
// configuration, it keeps lists, which are copies of an earlier primary configuration, and removes
// only stand-alone configurations, which provide no network.
func (p *planner) releaseLeftovers(hasPrimary bool) {
	for _, name := range p.leftovers() {
		if hasPrimary || filepath.Ext(name) != ".conflist" {
			p.Files = append(p.Files, release(p.Settings, p.found, name)...)
		}
	}
}

// leftovers returns the files that the agent created with other settings.
func (p *planner) leftovers() []string {
	var names []string
	for name, e := range p.found.Entries {
		if _, exists := p.found.Files[name]; exists && e.Kind == journal.Created &&
			!p.isForeign(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// planCopy maintains a copy of the primary configuration with the plugin. If another program uses
// the copy's name, or if there is no copy yet and the agent cannot read the first file, the plugin
// is inserted into the primary configuration instead. If the primary configuration sorts before the
// copy, the plugin is inserted into both.
func (p *planner) planCopy() {
	name := p.IstioOwnedCNIConfigFileName
	current, exists := p.found.Files[name]
	if exists && (p.isForeign(name) || p.found.Entries[name].Kind == journal.Edited) {
		p.report(FileNameTaken, false, "%s belongs to another program; "+
			"the plugin is inserted into the configuration in use instead", name)
		p.planChained()
		return
	}
	others := p.found.configurations(append(p.leftovers(), name)...)
	if _, unreadable := p.unreadableFirst(others); unreadable && !exists {
		// The unreadable file may be the configuration of the node's network, and a copy of another
		// file might sort before it. planChained edits the next file, which a runtime uses if it
		// skips the unreadable one.
		p.planChained()
		return
	}
	choice, ok := p.choose(others)
	if !ok {
		switch {
		case choice.List != nil && (!exists || choice.Name < name):
			p.Primary, p.Plugins = choice.Name, choice.List.Types()
		case exists:
			// The copy stays, so that no pod starts without redirection when the network's
			// configuration is written again.
			p.Primary = name
		}
		p.releaseLeftovers(false)
		return
	}
	p.Primary, p.Plugins = name, choice.List.Types()
	types := p.replacedTypes(choice.Name, choice.List)
	content, err := choice.List.Insert(p.element(name), types...)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	p.addTarget(Target{
		Name: name, Current: current.Data, Content: content, Mode: p.found.Files[choice.Name].Mode,
	}, p.journalEntry(name))
	first, _, err := chain.Discover(others, "")
	if err == nil && first.Name < name {
		p.report(Preempted, false, "%s sorts before %s, so the plugin is inserted into %[1]s too; "+
			"set istioOwnedCNIConfigFileName to a name that sorts first", first.Name, name)
		p.Primary = first.Name
		p.insert(first)
	}
	p.releaseOthers(name, p.Primary)
}

// planStandalone maintains a configuration with only the plugin.
func (p *planner) planStandalone() {
	name := p.CNIConfFileName
	current, exists := p.found.Files[name]
	isReplaced := slices.Contains(p.ReplacedTypes, chain.TypeOf(current.Data))
	if exists && p.isForeign(name) && !isReplaced {
		p.report(FileNameTaken, true, "%s belongs to another program; choose another cniConfFileName",
			name)
		return
	}
	content, err := chain.Standalone(p.element(name), p.CNIVersion, p.NetworkName)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	p.Primary, p.Plugins = name, []string{p.Type}
	entry, mode := p.journalEntry(name), p.standaloneMode()
	if exists {
		mode = current.Mode
		if p.isForeign(name) {
			entry = journal.Entry{Kind: journal.Edited, Original: current.Data, Mode: mode}
		}
	}
	if chain.Equal(current.Data, content) ||
		p.relaxed.KeepElement && p.found.hasPlugin(name, p.Type) {
		content = current.Data
	}
	p.addTarget(Target{Name: name, Current: current.Data, Content: content, Mode: mode}, entry)
	p.releaseOthers(name)
}

// journalEntry returns the journal entry of a file, or a new one for a file that the agent creates.
// A file that the agent edited and another program removed counts as created by the agent:
// istio-cni removes its configuration when it is uninstalled.
func (p *planner) journalEntry(name string) journal.Entry {
	_, exists := p.found.Files[name]
	if e, ok := p.found.Entries[name]; ok && (exists || e.Kind != journal.Edited) {
		return e
	}
	return journal.Entry{Kind: journal.Created}
}

// isForeign reports whether another program wrote the content of a file, and the content does not
// contain the plugin.
func (p *planner) isForeign(name string) bool {
	return !p.found.hasPlugin(name, p.Type) &&
		!p.found.Entries[name].WrittenByAgent(p.found.Files[name].Data)
}

// releaseOthers removes the plugin from all files except the given ones. Other files contain it
// because of earlier settings.
func (p *planner) releaseOthers(except ...string) {
	for _, name := range slices.Sorted(maps.Keys(p.found.Files)) {
		_, hasEntry := p.found.Entries[name]
		if !slices.Contains(except, name) && (hasEntry || p.found.hasPlugin(name, p.Type)) {
			p.Files = append(p.Files, release(p.Settings, p.found, name)...)
		}
	}
}
