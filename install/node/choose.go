package node

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// choose returns the configuration for the plugin, and reports problems of the choice.
func (p *planner) choose(files []chain.File) (chain.Choice, bool) {
	_, passed, _ := chain.Discover(files, "")
	choice, skipped, err := p.find(files)
	reported := map[string]bool{}
	for _, s := range passed {
		reported[s.Name] = true
		p.reportSkipped(s, true)
	}
	for _, s := range skipped {
		if !reported[s.Name] { // no runtime comes so far
			p.reportSkipped(s, false)
		}
	}
	if err != nil {
		p.report(NoConfiguration, true, "%v in %s; waiting for one", err, p.CNIConfDir)
		return choice, false
	}
	if p.found.Folders[choice.List.Name] && !choice.List.OnlyInlined && !choice.Plain {
		p.report(NotChainable, false,
			"%s loads more plugins from the directory %s; they run after Sluice's", choice.Name,
			choice.List.Name)
	}
	if !choice.List.Chains() {
		p.report(NotChainable, true, "%s has cniVersion %q; a chain needs 0.3.0 or later",
			choice.Name, choice.List.CNIVersion)
		return choice, false
	}
	return choice, true
}

// find returns the configuration for the plugin: the one that runtimes use, the named one, or the
// list that replaced it.
func (p *planner) find(files []chain.File) (chain.Choice, []chain.Skipped, error) {
	name := p.CNIConfFileName
	if list, ok := p.replacementList(name); ok {
		name = list
	}
	choice, skipped, err := chain.Discover(files, name)
	if list, ok := p.replacementList(strings.TrimSuffix(name, ".conflist") + ".conf"); ok &&
		err != nil {
		choice, _, err = chain.Discover(files, list)
	}
	return choice, skipped, err
}

// replacementList returns the list that replaced a plain configuration which no longer exists.
func (p *planner) replacementList(plain string) (string, bool) {
	if _, back := p.found.Files[plain]; back {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(p.found.Entries)) {
		if e := p.found.Entries[name]; e.Kind == journal.Converted && e.From == plain &&
			p.found.carries(name, p.Type) {
			return name, true
		}
	}
	return "", false
}

// reportSkipped reports an invalid file. first means that it sorts before a valid one, and
// therefore affects runtimes, unless Sluice's own configuration sorts before it.
func (p *planner) reportSkipped(s chain.Skipped, first bool) {
	file := p.found.Files[s.Name]
	switch {
	case errors.Is(s.Reason, chain.ErrNoPlugins):
		p.report(NotChainable, first,
			"%s has its plugins in a folder; runtimes that know this use it, and the plugin cannot be put there", s.Name)
	case !first, p.comesAfterOurs(s.Name):
		p.report(Unreadable, false, "%v", s)
	case file.Settling:
	case file.Err != nil:
		p.report(Unreadable, true,
			"%v; a runtime that can read it takes it, and new pods have no redirection; of the others %s; %s",
			s, whatRuntimesDo, removeIt)
	default:
		p.report(Unreadable, true, "%v; %s; %s", s, whatRuntimesDo, removeIt)
	}
}

const (
	whatRuntimesDo = "containerd takes no configuration because of it, and no pod starts, while CRI-O passes it over"
	removeIt       = "correct it, or take it out of the directory"
)

// comesAfterOurs reports whether Sluice's own configuration sorts before an invalid file. It is not
// placed before a file that cannot be read here, which may be the configuration of the node's
// network, while Sluice's would be a copy of another one.
func (p *planner) comesAfterOurs(name string) bool {
	_, exists := p.found.Files[p.IstioOwnedCNIConfigFileName]
	return p.Settings.owned() && p.IstioOwnedCNIConfigFileName < name && (exists ||
		p.found.Files[name].Err == nil)
}

// hidden returns the first file that runtimes may prefer to all files that can be read here.
func (p *planner) hidden(files []chain.File) (name string, ok bool) {
	_, passed, _ := chain.Discover(files, "")
	i := slices.IndexFunc(passed, func(s chain.Skipped) bool {
		return p.found.Files[s.Name].Err != nil
	})
	if i < 0 {
		return "", false
	}
	return passed[i].Name, true
}

// bypass determines whether runtimes use another configuration than the one with the plugin.
func (p *planner) bypass(files []chain.File, chosen chain.Choice) {
	if first, _, err := chain.Discover(files, ""); err == nil && first.Name != chosen.Name {
		p.notInUse(chosen, first)
	}
	if name, ok := p.hidden(files); ok && !p.found.Files[name].Settling {
		p.Primary, p.Plugins = name, nil // as far as is known; why this is so was reported
	}
}

// notInUse reports that another configuration sorts before the named one, unless that one delegates
// to the named one. A delegation that cannot be followed here ([chain.Unclear]) is only reported
// and does not make the node unready, although pods may have no redirection: its target is known
// only to the API server or in another directory, and a node where it is the named one would never
// be ready.
func (p *planner) notInUse(named, first chain.Choice) {
	delegation := first.Delegates(named, p.Type)
	switch {
	case delegation == chain.Followed:
	case delegation == chain.Unclear, first.List.Has(p.Type):
		p.report(NotInUse, false,
			"cniConfFileName is %s, but by the order of names a runtime takes %s%s; %s",
			named.Name, first.Name, which(delegation), byName)
	default:
		p.Primary, p.Plugins = first.Name, first.List.Types()
		p.report(NotInUse, true,
			"cniConfFileName is %s, but by the order of names a runtime takes %s, of %s%s: new pods have no redirection; %s; %s",
			named.Name, first.Name, p.writers(), which(delegation), byName,
			remedy(delegation, first.Name))
	}
}

// byName is a limitation of choosing by the order of names.
const byName = "CRI-O's cni_default_network is not read"

// writers names the programs that install the plugins in use, and the plugins.
func (p *planner) writers() string {
	return writerOf(p.Plugins[0]).name + " (" + strings.Join(p.Plugins, ", ") + ")"
}

func which(d chain.Delegation) string {
	if d == chain.NoDelegation {
		return ""
	}
	return ", which " + string(d)
}

func remedy(d chain.Delegation, first string) string {
	if d == chain.NoDelegation {
		return "name " + first + " there, or none"
	}
	return "let Multus delegate to the named one, or restart it so that it copies it again"
}
