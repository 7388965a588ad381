package compat

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// described says what a feature is to people: with the kernel's configuration option, the module, and the first version that has it.
func described(f xtables.Feature) nft.Feature {
	d := nft.Feature{Name: f.String(), Since: "2.6.39"} // the last of the revisions that all rules use: conntrack's third
	if since, ok := later[xtables.Feature{Family: f.Family, Kind: f.Kind, Name: f.Name}]; ok {
		d.Since = since
	}
	module := "xt_" + strings.ToLower(f.Name)
	switch f.Kind {
	case xtables.KindMatch:
		d.Name = "iptables-legacy's " + d.Name
		d.Option = extensionOption("MATCH_", f.Name)
	case xtables.KindTarget:
		d.Name = "iptables-legacy's " + d.Name
		d.Option = extensionOption("TARGET_", f.Name)
	default:
		prefix := map[rules.Family]string{rules.IPv4: "IP", rules.IPv6: "IP6"}[f.Family]
		d.Option = fmt.Sprintf("CONFIG_%s_NF_%s", prefix, strings.ToUpper(f.Name))
		module = fmt.Sprintf("%stable_%s", strings.ToLower(prefix), f.Name)
	}
	if d.Option != builtInOption {
		d.Option += ", module " + module
	}
	return d
}

// builtInOption has the matches tcp and udp.
const builtInOption = "CONFIG_NETFILTER_XTABLES"

// extensionOption is the option of a match or target. Some have one for both.
func extensionOption(kind, name string) string {
	switch name {
	case "tcp", "udp":
		return builtInOption
	case "mark", "MARK", "connmark", "CONNMARK":
		kind = ""
	}
	return "CONFIG_NETFILTER_XT_" + kind + strings.ToUpper(name)
}

// later are the features that came after most others, whatever the revision, by the kernel's history.
var later = map[xtables.Feature]string{
	{Family: rules.IPv6, Kind: xtables.KindTable, Name: "nat"}:       "3.7",
	{Family: rules.IPv6, Kind: xtables.KindTarget, Name: "REDIRECT"}: "3.7",
	{Family: rules.IPv4, Kind: xtables.KindTarget, Name: "CT"}:       "3.4",
	{Family: rules.IPv6, Kind: xtables.KindTarget, Name: "CT"}:       "3.4",
}
