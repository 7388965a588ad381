package node

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// choose returns the configuration to insert the plugin into. It reports the invalid files, and
// whether the configuration can contain a chain.
func (p *planner) choose(files []chain.File) (chain.Choice, bool) {
	_, skippedFirst, _ := chain.Discover(files, "")
	choice, skipped, err := p.find(files)
	reported := map[string]bool{}
	for _, s := range skippedFirst {
		reported[s.Name] = true
		p.reportSkipped(s, true)
	}
	for _, s := range skipped {
		if !reported[s.Name] { // sorts after the file in use
			p.reportSkipped(s, false)
		}
	}
	if err != nil {
		p.report(NoConfiguration, true, "%v in %s; the plugin is inserted when a network plugin installs one", err, p.CNIConfDir)
		return choice, false
	}
	if p.found.PluginDirs[choice.List.Name] && !choice.List.OnlyInlined && !choice.SinglePlugin {
		p.report(NotChainable, false,
			"%s loads more plugins from the directory %s; they run after Sluice's plugin", choice.Name,
			choice.List.Name)
	}
	if !choice.List.SupportsChains() {
		p.report(NotChainable, true, "%s has cniVersion %q; plugin chains need 0.3.0 or later",
			choice.Name, choice.List.CNIVersion)
		return choice, false
	}
	return choice, true
}

// find returns the configuration to insert the plugin into: the configuration that runtimes use or,
// if cniConfFileName is set, the named one or the list that replaced it.
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

// replacementList returns the list that replaced a single-plugin configuration which no longer
// exists.
func (p *planner) replacementList(single string) (string, bool) {
	if _, exists := p.found.Files[single]; exists {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(p.found.Entries)) {
		if e := p.found.Entries[name]; e.Kind == journal.Converted && e.From == single &&
			p.found.hasPlugin(name, p.Type) {
			return name, true
		}
	}
	return "", false
}

// reportSkipped reports an invalid file. first means that it sorts before the first valid file and
// therefore affects runtimes, unless Sluice's configuration sorts before it.
func (p *planner) reportSkipped(s chain.Skipped, first bool) {
	file := p.found.Files[s.Name]
	switch {
	case errors.Is(s.Reason, chain.ErrNoPlugins):
		p.report(NotChainable, first,
			"%s loads its plugins from a directory; runtimes that support this use the file, and Sluice's plugin cannot be inserted into it", s.Name)
	case !first, p.sortsAfterOwned(s.Name):
		p.report(Unreadable, false, "%v", s)
	case file.Incomplete:
	case file.Err != nil:
		p.report(Unreadable, true,
			"%v; a runtime that can read it uses it, and new pods have no redirection; if it cannot read it, %s; %s",
			s, whatRuntimesDo, correctIt)
	default:
		p.report(Unreadable, true, "%v; %s; %s", s, whatRuntimesDo, correctIt)
	}
}

const (
	whatRuntimesDo = "containerd loads no configuration because of it, and no pod starts; CRI-O skips it"
	correctIt      = "correct it, or remove it from the directory"
)

// sortsAfterOwned reports whether an invalid file sorts after Sluice's copy of the primary
// configuration. A new copy is not placed before a file that the agent cannot read: the file may be
// the configuration of the node's network, and the copy would be of another configuration.
func (p *planner) sortsAfterOwned(name string) bool {
	_, exists := p.found.Files[p.IstioOwnedCNIConfigFileName]
	return p.owned() && p.IstioOwnedCNIConfigFileName < name && (exists ||
		p.found.Files[name].Err == nil)
}

// unreadableFirst returns the first file that the agent cannot read and that runtimes may prefer to
// all readable files.
func (p *planner) unreadableFirst(files []chain.File) (name string, ok bool) {
	_, skippedFirst, _ := chain.Discover(files, "")
	i := slices.IndexFunc(skippedFirst, func(s chain.Skipped) bool {
		return p.found.Files[s.Name].Err != nil
	})
	if i < 0 {
		return "", false
	}
	return skippedFirst[i].Name, true
}

// updatePrimary updates the primary configuration if runtimes use another file than the one with
// the plugin.
func (p *planner) updatePrimary(files []chain.File, chosen chain.Choice) {
	if first, _, err := chain.Discover(files, ""); err == nil && first.Name != chosen.Name {
		p.reportNotInUse(chosen, first)
	}
	if name, ok := p.unreadableFirst(files); ok && !p.found.Files[name].Incomplete {
		p.Primary, p.Plugins = name, nil // the chain is unknown; reportSkipped reported the file
	}
}

// reportNotInUse reports that another configuration sorts before the named one, unless the other
// one delegates to the named one. If the target of the delegation cannot be determined
// ([chain.Unclear]), the problem does not make the node unready, although pods may have no
// redirection: the target is stored in the API server or in another directory, and a node where the
// target is the named configuration would never become ready.
func (p *planner) reportNotInUse(named, first chain.Choice) {
	delegation := first.Delegates(named, p.Type)
	switch {
	case delegation == chain.Followed:
	case delegation == chain.Unclear, first.List.Has(p.Type):
		p.report(NotInUse, false,
			"cniConfFileName is %s, but runtimes use the first file in order of names, %s%s; %s",
			named.Name, first.Name, delegationText(delegation), crioLimit)
	default:
		p.Primary, p.Plugins = first.Name, first.List.Types()
		p.report(NotInUse, true,
			"cniConfFileName is %s, but runtimes use the first file in order of names, %s, of %s%s: new pods have no redirection; %s; %s",
			named.Name, first.Name, p.writerText(), delegationText(delegation), crioLimit,
			remedy(delegation, first.Name))
	}
}

// crioLimit is a limitation of choosing by the order of names.
const crioLimit = "the agent does not read CRI-O's cni_default_network"

// writerText names the program that installs the first plugin in use, and the plugins.
func (p *planner) writerText() string {
	return writerOf(p.Plugins[0]).name + " (" + strings.Join(p.Plugins, ", ") + ")"
}

func delegationText(d chain.Delegation) string {
	if d == chain.NoDelegation {
		return ""
	}
	return ", which " + string(d)
}

func remedy(d chain.Delegation, first string) string {
	if d == chain.NoDelegation {
		return "set cniConfFileName to " + first + " or to an empty string"
	}
	return "let Multus delegate to the file in cniConfFileName, or restart Multus so that it copies the file again"
}
