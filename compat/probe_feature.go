package compat

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// since is the first version that has the last of the revisions that all rules use: conntrack's third.
const since = "2.6.39"

// prefixes are how the kernel's names begin.
var prefixes = map[rules.Family]string{rules.IPv4: "ip", rules.IPv6: "ip6"}

// described says what a feature is to people: with the kernel's configuration option, the module, and the first version that has it.
func described(f xtables.Feature) nft.Feature {
	d := nft.Feature{Name: f.String(), Since: since}
	if since, ok := later[xtables.Feature{Family: f.Family, Kind: f.Kind, Name: f.Name}]; ok {
		d.Since = since
	}
	option, module := sourceOf(f)
	if f.Kind == xtables.KindTable {
		option = fmt.Sprintf("%s_NF_%s", prefixes[f.Family], f.Name)
		module = fmt.Sprintf("%stable_%s", prefixes[f.Family], f.Name)
	} else {
		d.Name = "iptables-legacy's " + d.Name
	}
	d.Option = withModule(option, module)
	return d
}

// familyDescribed is described for all that the kernel has of iptables-legacy for a family.
func familyDescribed(f rules.Family) nft.Feature {
	prefix := prefixes[f]
	return nft.Feature{
		Name:   fmt.Sprintf("iptables-legacy's tables of %s", f),
		Option: withModule(prefix+"_NF_IPTABLES", prefix+"_tables"),
		Since:  since,
	}
}

func withModule(option, module string) string {
	return fmt.Sprintf("CONFIG_%s, module %s", strings.ToUpper(option), module)
}

// sourceOf returns the option and the module of a match or target. Some have one for both, and tcp and udp that of all.
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

// later are the features that came after most others, whatever the revision, by the kernel's history.
var later = map[xtables.Feature]string{
	{Family: rules.IPv6, Kind: xtables.KindTable, Name: "nat"}:       "3.7",
	{Family: rules.IPv6, Kind: xtables.KindTarget, Name: "REDIRECT"}: "3.7",
	{Family: rules.IPv4, Kind: xtables.KindTarget, Name: "CT"}:       "3.4",
	{Family: rules.IPv6, Kind: xtables.KindTarget, Name: "CT"}:       "3.4",
}
