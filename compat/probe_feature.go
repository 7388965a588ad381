package compat

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// firstVersion is the first kernel version with all revisions of matches that Sluice's rules use.
// The newest of these revisions is revision 3 of conntrack.
const firstVersion = "2.6.39"

// describeFeature returns the display name of a feature, its configuration option and module, and
// the first kernel version that supports it.
func describeFeature(f xtables.Feature) nft.Feature {
	d := nft.Feature{Name: f.String(), Since: since(f)}
	option, module := sourceOf(f)
	if f.Kind == xtables.KindTable {
		option = fmt.Sprintf("%s_NF_%s", f.Family, f.Name)
		module = fmt.Sprintf("%stable_%s", f.Family, f.Name)
	} else {
		d.Name = "iptables-legacy's " + d.Name
	}
	d.Option = withModule(option, module)
	return d
}

// describeFamily describes iptables-legacy for a family.
func describeFamily(f rules.Family) nft.Feature {
	return nft.Feature{
		Name:   fmt.Sprintf("iptables-legacy's tables of %s", f),
		Option: withModule(fmt.Sprintf("%s_NF_IPTABLES", f), fmt.Sprintf("%s_tables", f)),
		Since:  firstVersion,
	}
}

func withModule(option, module string) string {
	return fmt.Sprintf("CONFIG_%s, module %s", strings.ToUpper(option), module)
}

// sourceOf returns the configuration option and the module of a match or target. Some extensions
// share a module.
func sourceOf(f xtables.Feature) (option, module string) {
	switch f.Name {
	case "tcp", "udp":
		return "netfilter_xtables", "xt_tcpudp"
	case "mark", "MARK", "connmark", "CONNMARK":
		name := strings.ToLower(f.Name)
		return "netfilter_xt_" + name, "xt_" + name
	}
	kind := "match_"
	if f.Kind == xtables.KindTarget {
		kind = "target_"
	}
	return "netfilter_xt_" + kind + f.Name, "xt_" + f.Name
}

// since returns the first kernel version, from firstVersion on, that supports the feature.
func since(f xtables.Feature) string {
	target := f.Kind == xtables.KindTarget
	switch {
	case f.Family == rules.IPv6 && (f.Kind == xtables.KindTable && f.Name == "nat" ||
		target && f.Name == "REDIRECT"):
		return "3.7"
	case target && f.Name == "CT":
		return "3.4"
	}
	return firstVersion
}
