package node

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// Relaxed contains the constraints that are temporarily relaxed because they cannot be met, in
// favor of the essential one: the plugin is in the chain.
type Relaxed struct {
	Position bool // other plugins may come after ours
	Together bool // plugins in whose place ours comes may stay in addition to it
	// an element of ours with another configuration may stay: its executable could not be replaced
	Outdated bool
}

// Desired returns the desired state of the configuration directory. It is a function of its
// arguments, except that it calls the settings' gate.
func Desired(s Settings, f Found, c Relaxed) State {
	p := planner{Settings: s, found: f, relaxed: c}
	switch {
	case !s.Chained:
		p.standalone()
	case s.owned():
		p.owned()
	default:
		p.chained()
	}
	return p.State
}

// A planner collects the targets of one computation.
type planner struct {
	Settings
	State
	found   Found
	relaxed Relaxed
}

// chained puts the plugin into the configuration that the runtime uses, and updates it in other
// configurations that contain it, so that the next one is ready if the first is removed.
func (p *planner) chained() {
	own := p.leftovers()
	files := p.found.configurations(own...)
	choice, ok := p.choose(files)
	if ok {
		p.Primary, p.Plugins = choice.Name, choice.List.Types()
		p.insert(choice)
	}
	for _, name := range slices.Sorted(maps.Keys(p.found.Files)) {
		if name == p.Primary || slices.Contains(own, name) || !p.found.carries(name, p.Type) {
			continue
		}
		if list, err := chain.Parse(p.found.Files[name].Data); err == nil {
			p.edit(name, list, false)
		}
	}
	p.releaseLeftovers(ok)
	if ok {
		p.bypass(files, choice)
	}
}

// releaseLeftovers removes files of earlier settings. A copy of a primary configuration is kept
// while there is no primary one; a stand-alone configuration is not, because it provides no
// network.
func (p *planner) releaseLeftovers(primary bool) {
	for _, name := range p.leftovers() {
		if primary || filepath.Ext(name) != ".conflist" {
			p.Files = append(p.Files, release(p.Settings, p.found, name)...)
		}
	}
}

// leftovers returns Sluice's files of other settings.
func (p *planner) leftovers() []string {
	var names []string
	for name, e := range p.found.Entries {
		if _, exists := p.found.Files[name]; exists && e.Kind == journal.Created &&
			!p.foreign(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// owned maintains a copy of the primary configuration with the plugin. If that is not possible, the
// plugin goes into the primary one.
func (p *planner) owned() {
	name := p.IstioOwnedCNIConfigFileName
	now, exists := p.found.Files[name]
	if exists && (p.foreign(name) || p.found.Entries[name].Kind == journal.Edited) {
		p.report(NameTaken, false,
			"%s belongs to another program; the plugin is added to the configuration in use instead", name)
		p.chained()
		return
	}
	others := p.found.configurations(append(p.leftovers(), name)...)
	if _, hidden := p.hidden(others); hidden && !exists {
		// A copy of a later file might take precedence over the node's network. A runtime that
		// skips the hidden file uses the next one.
		p.chained()
		return
	}
	choice, ok := p.choose(others)
	if !ok {
		if exists {
			// pods of a network that comes back shall not find themselves without redirection
			p.Primary = name
		}
		p.releaseLeftovers(false)
		return
	}
	p.Primary, p.Plugins = name, choice.List.Types()
	content, err := choice.List.Insert(p.element(name), p.displaced(choice.Name, choice.List)...)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	p.want(Target{
		Name: name, Was: now.Data, Content: content, Mode: p.found.Files[choice.Name].Mode,
	}, p.record(name))
	inUse, _, err := chain.Discover(others, "")
	if err == nil && inUse.Name < name {
		p.report(Preempted, false,
			"%s comes before %s, so the plugin goes into that as well; choose another istioOwnedCNIConfigFileName",
			inUse.Name, name)
		p.Primary = inUse.Name
		p.insert(inUse)
	}
	p.releaseOthers(name, p.Primary)
}

// standalone maintains a configuration with only the plugin.
func (p *planner) standalone() {
	name := p.CNIConfFileName
	now, exists := p.found.Files[name]
	if exists && p.foreign(name) && !slices.Contains(p.TakeOver, chain.PlainType(now.Data)) {
		p.report(NameTaken, true, "%s belongs to another program; choose another cniConfFileName",
			name)
		return
	}
	content, err := chain.Standalone(p.Element, p.CNIVersion, p.NetworkName)
	if err != nil {
		p.Problems = append(p.Problems, problemOf(err))
		return
	}
	p.Primary, p.Plugins = name, []string{p.Type}
	record, mode := p.record(name), p.standaloneMode()
	if exists {
		mode = now.Mode
		if p.foreign(name) {
			record = journal.Entry{Kind: journal.Edited, Original: now.Data, Mode: mode}
		}
	}
	if chain.Equal(now.Data, content) || p.relaxed.Outdated && p.found.carries(name, p.Type) {
		content = now.Data
	}
	p.want(Target{Name: name, Was: now.Data, Content: content, Mode: mode}, record)
	p.releaseOthers(name)
}

// record returns the journal entry of a file of Sluice.
func (p *planner) record(name string) journal.Entry {
	if e, ok := p.found.Entries[name]; ok {
		return e
	}
	return journal.Entry{Kind: journal.Created}
}

// foreign reports whether a file with the name of a file of Sluice is foreign.
func (p *planner) foreign(name string) bool {
	return !p.found.carries(name, p.Type) && !p.found.Entries[name].Wrote(p.found.Files[name].Data)
}

// releaseOthers removes the plugin from all files except keep, which contain it because of earlier
// settings.
func (p *planner) releaseOthers(keep ...string) {
	for _, name := range slices.Sorted(maps.Keys(p.found.Files)) {
		_, recorded := p.found.Entries[name]
		if !slices.Contains(keep, name) && (recorded || p.found.carries(name, p.Type)) {
			p.Files = append(p.Files, release(p.Settings, p.found, name)...)
		}
	}
}
