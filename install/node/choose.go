package node

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/config"
)

// choose returns the configuration to insert the plugin into. It returns false if there is none, if
// its CNI version does not support chains, or if the plugin does not support this version. If the
// file named by cniConfFileName is missing or invalid, and runtimes use another file, choose
// returns that file and false. It reports these cases and invalid files as problems.
func (p *planner) choose(files []chain.File) (chain.Choice, bool) {
	first, skippedFirst, _ := chain.Discover(files, "")
	choice, skipped, err := p.find(files)
	reported := map[string]bool{}
	for _, s := range skippedFirst {
		reported[s.Name] = true
		p.reportSkipped(s, true)
	}
	for _, s := range skipped {
		if !reported[s.Name] { // the file sorts after the configuration in use
			p.reportSkipped(s, false)
		}
	}
	if err != nil {
		if p.replacesMissing(first, skippedFirst) {
			p.reportNotInUse("cniConfFileName is "+p.CNIConfFileName+", which is missing or invalid",
				first, first.Delegates(p.missing(), p.NodeCNIConfDir, p.Type))
			return first, false
		}
		p.report(NoNetworkConfiguration, true,
			"%v in %s; the plugin is inserted when a network plugin installs one", err,
			p.CNIConfDir)
		return choice, false
	}
	p.reportNetwork(choice)
	if !choice.List.SupportsChains() {
		p.report(NotChainable, true, "%s has cniVersion %q; plugin chains need 0.3.0 or later",
			choice.Name, choice.List.CNIVersion)
		return choice, false
	}
	if unsupported, ok := unsupportedVersion(choice.List); ok {
		p.report(NotChainable, true, "%s has cniVersion %q, but the plugin supports only %s; "+
			"with the plugin in the chain no pod would start, so it is not inserted, and new pods have no "+
			"redirection; set cniVersion to one of these, or install a version of Sluice that supports %[2]q",
			choice.Name, unsupported, strings.Join(config.Versions(), ", "))
		return choice, false
	}
	return choice, true
}

// reportNetwork reports an invalid name of the network, plugins that the configuration loads from
// the subdirectory with this name, and a subdirectory because of which runtimes reject the
// configuration. A single-plugin configuration loads no plugins from there, but the list that
// replaces it does.
func (p *planner) reportNetwork(choice chain.Choice) {
	if err := choice.List.CheckName(); err != nil {
		effect := "no pod starts"
		if choice.List.Name == "" {
			effect = "with containerd no pod starts; CRI-O uses the name of the file"
		}
		p.report(InvalidConfiguration, choice.List.Name != "",
			"%s has an invalid network name: %v; %s; correct the field \"name\"", choice.Name, err,
			effect)
		if choice.List.Name != "" {
			return
		}
	}
	if choice.List.OnlyInlined {
		return
	}
	name := cmp.Or(choice.List.Name, ".") // see Actual.PluginDirs
	switch dir := p.found.PluginDirs[choice.List.Name]; {
	case dir.Err != nil:
		p.report(InvalidConfiguration, true, "%s loads plugins from the directory %s, which is "+
			"invalid: %v; runtimes that support such directories do not use %[1]s: containerd loads no "+
			"configuration, and no pod starts; CRI-O uses the next file, and new pods have no "+
			"redirection; correct the directory or remove it", choice.Name, name, dir.Err)
	case dir.HasPlugins:
		p.report(NotChainable, false,
			"%s loads more plugins from the directory %s; they run after Sluice's plugin",
			choice.Name, name)
	}
}

// unsupportedVersion returns the CNIVersion or the OldCNIVersion of a list, if the plugin does not
// support it, and false if the plugin supports both. A runtime may call the plugins of the list
// with either version. With an unsupported version the plugin fails, and CRI-O does not use the
// list.
func unsupportedVersion(list *chain.List) (version string, ok bool) {
	for _, v := range []string{list.CNIVersion, list.OldCNIVersion} {
		if !slices.Contains(config.Versions(), v) {
			return v, true
		}
	}
	return "", false
}

// If cniConfFileName is set, find returns the configuration that it names or, if this is missing,
// the list that replaced it. Otherwise find returns the configuration that runtimes use.
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

// replacementList returns the name of the list that replaced a single-plugin configuration, and
// false if the single-plugin configuration exists or there is no such list.
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

// reportSkipped reports an invalid file. If precedes is set, the file sorts before the first valid
// file. It then affects runtimes, unless Sluice's copy sorts before it, and is not reported while a
// program may still be writing it.
func (p *planner) reportSkipped(s chain.Skipped, precedes bool) {
	file := p.found.Files[s.Name]
	switch {
	case errors.Is(s.Reason, chain.ErrNoPlugins):
		p.report(NotChainable, precedes, "%s loads its plugins from a directory; "+
			"runtimes that support this use the file, and Sluice's plugin cannot be inserted "+
			"into it",
			s.Name)
	case !precedes, p.sortsAfterCopy(s.Name):
		p.report(InvalidConfiguration, false, "%v", s)
	case file.Incomplete:
	case file.Err != nil:
		p.report(InvalidConfiguration, true, "%v; a runtime that can read the file uses it, "+
			"and new pods have no redirection; otherwise %s; %s",
			s, invalidEffect, invalidAdvice)
	default:
		p.report(InvalidConfiguration, true, "%v; %s; %s", s, invalidEffect, invalidAdvice)
	}
}

// The effect of an invalid file that sorts first, and the remedy.
const (
	invalidEffect = "containerd loads no configuration because of it, and no pod starts; " +
		"CRI-O skips it"
	invalidAdvice = "correct it, or remove it from the directory"
)

// sortsAfterCopy reports whether an invalid file sorts after Sluice's copy of the primary
// configuration, which exists or will be created. A copy is not created before a file that the
// agent cannot read: this file may be the configuration of the node's network, and the copy would
// have the content of another configuration.
func (p *planner) sortsAfterCopy(name string) bool {
	_, exists := p.found.Files[p.IstioOwnedCNIConfigFileName]
	return p.maintainsCopy() && p.IstioOwnedCNIConfigFileName < name && (exists ||
		p.found.Files[name].Err == nil)
}

// unreadableFirst returns the first file that the agent cannot read and that sorts before all valid
// files. It returns false if there is no such file.
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

// updatePrimary reports a problem if runtimes use another file than the chosen one. It sets Primary
// to the file in use if pods have no redirection with it, or if the agent cannot read it.
func (p *planner) updatePrimary(files []chain.File, chosen chain.Choice) {
	if first, _, err := chain.Discover(files, ""); err == nil && first.Name != chosen.Name {
		p.reportNotInUse("cniConfFileName is "+chosen.Name, first,
			first.Delegates(chosen, p.NodeCNIConfDir, p.Type))
	}
	if name, ok := p.unreadableFirst(files); ok && !p.found.Files[name].Incomplete {
		p.Primary, p.Plugins = name, nil // the chain is unknown; reportSkipped reported the file
	}
}

// missing returns the missing configuration that cniConfFileName names. It contains only the name.
func (p *planner) missing() chain.Choice {
	return chain.Choice{File: chain.File{Name: p.CNIConfFileName}, List: &chain.List{}}
}

// replacesMissing reports whether runtimes use first, the first valid file, because the file named
// by cniConfFileName is missing or invalid. It returns false if an invalid file sorts before first,
// because reportSkipped reports that file. It returns false if a list that the agent created sorts
// before first. It also returns false if first lacks the plugin and may delegate to the missing
// file: then no pod with a network starts.
func (p *planner) replacesMissing(first chain.Choice, skippedFirst []chain.Skipped) bool {
	if first.List == nil || len(skippedFirst) > 0 {
		return false
	}
	if inUse, _, err := chain.Discover(p.found.configurations(), ""); err != nil ||
		inUse.Name != first.Name {
		return false
	}
	delegation := first.Delegates(p.missing(), p.NodeCNIConfDir, p.Type)
	return first.List.Has(p.Type) || delegation != chain.Followed && delegation != chain.Unclear
}

// reportNotInUse reports that runtimes use first instead of the configuration that cniConfFileName
// names, unless first delegates to that configuration. setting begins the message. The problem is
// not blocking if first contains the plugin, or if it is unknown to which configuration first
// delegates ([chain.Unclear]). In the second case pods may have no redirection. But first may
// delegate to the named configuration through the API server or another directory, and with a
// blocking problem such a node would never become ready.
func (p *planner) reportNotInUse(setting string, first chain.Choice, delegation chain.Delegation) {
	switch {
	case delegation == chain.Followed:
	case delegation == chain.Unclear, first.List.Has(p.Type):
		p.report(ConfigurationNotInUse, false,
			"%s, but runtimes use the first file in order of names, %s%s; %s",
			setting, first.Name, delegationText(delegation), crioLimit)
	default:
		p.Primary, p.Plugins = first.Name, first.List.Types()
		p.report(ConfigurationNotInUse, true,
			"%s, but runtimes use the first file in order of names, %s, of %s%s: "+
				"new pods have no redirection; %s; %s",
			setting, first.Name, p.writerText(), delegationText(delegation), crioLimit,
			remedy(delegation, first.Name))
	}
}

// crioLimit states why a runtime may use another file than the first one.
const crioLimit = "the agent does not read CRI-O's cni_default_network"

// writerText returns the name of the program that installs the first plugin of the primary
// configuration, and the types of the plugins.
func (p *planner) writerText() string {
	return writerOf(p.Plugins[0]).name + " (" + strings.Join(p.Plugins, ", ") + ")"
}

// delegationText continues a sentence that ends with the name of the file that sorts first.
func delegationText(d chain.Delegation) string {
	if d == chain.NoDelegation {
		return ""
	}
	return ", which " + string(d)
}

// remedy returns the advice for a named configuration that is not in use.
func remedy(d chain.Delegation, first string) string {
	if d == chain.NoDelegation {
		return "set cniConfFileName to " + first + " or to an empty string"
	}
	return "let Multus delegate to the file that cniConfFileName names, " +
		"or restart Multus so that it copies the file again"
}
