package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// IsNotPermitted reports whether a backend failed because of missing privileges.
func IsNotPermitted(err error) bool { return nft.IsNotPermitted(err) }

// IsNotSupported reports whether a backend failed because the kernel lacks a feature.
func IsNotSupported(err error) bool {
	if errors.Is(err, route.ErrNoIPv6) {
		return false // the error does not depend on the backend
	}
	return nft.IsNotSupported(err) || errors.Is(err, unix.ENOPROTOOPT)
}

// ProbeLegacy tests in a temporary namespace whether the kernel supports the iptables-legacy
// tables, matches and targets that the ruleset needs. It does not depend on installed programs. If
// the kernel lacks iptables-legacy for a family, the result contains a single feature for the
// family. Like nft.Probe, ProbeLegacy needs CAP_SYS_ADMIN and CAP_NET_ADMIN. It also needs
// CAP_SYS_MODULE if the module of the family is not loaded.
func ProbeLegacy(rs rules.Ruleset) ([]nft.Support, error) {
	translated, err := Translate(rs)
	if err != nil {
		return nil, err
	}
	needed, err := featuresOf(tablesOf(translated.Tables))
	if err != nil {
		return nil, err
	}
	support, err := probeFeatures(needed)
	if err != nil {
		return nil, fmt.Errorf("probe the kernel's iptables-legacy features: %w", err)
	}
	return support, nil
}

// probeFeatures tests the features in a temporary namespace.
func probeFeatures(features []xtables.Feature) ([]nft.Support, error) {
	scratch, err := netns.New()
	if err != nil {
		return nil, err
	}
	defer func() { _ = scratch.Close() }()
	var support []nft.Support
	for _, f := range features {
		s := nft.Support{Feature: describeFeature(f)}
		if err := xtables.Probe(scratch, f); err != nil {
			if !isMissing(err) {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			if errors.Is(err, unix.ENOPROTOOPT) {
				s.Feature = describeFamily(f.Family)
			}
			s.Err = &nft.UnsupportedError{Feature: s.Feature, Err: err}
		}
		if !slices.ContainsFunc(support, func(other nft.Support) bool {
			return other.Feature == s.Feature
		}) {
			support = append(support, s)
		}
	}
	return support, nil
}

// featuresOf returns the features that the tables need, each once.
func featuresOf(desired tables) ([]xtables.Feature, error) {
	var features []xtables.Feature
	seen := map[xtables.Feature]bool{}
	add := func(f xtables.Feature) {
		if !seen[f] && f.Name != "" {
			seen[f] = true
			features = append(features, f)
		}
	}
	for _, t := range desired.list() {
		id := xtables.ID{Family: t.Family, Name: t.Name}
		add(xtables.Feature{Family: t.Family, Kind: xtables.KindTable, Name: t.Name})
		encoded, err := encodeSluiceRules(id, &t)
		if err != nil {
			return nil, err
		}
		for _, c := range encoded.chains {
			for i := range c.rules {
				for _, m := range c.rules[i].Matches() {
					add(xtables.Feature{
						Family: t.Family, Kind: xtables.KindMatch, Name: m.Name,
						Revision: m.Revision,
					})
				}
				x := c.rules[i].Target()
				add(xtables.Feature{
					Family: t.Family, Kind: xtables.KindTarget, Name: x.Name, Revision: x.Revision,
				})
			}
		}
	}
	return features, nil
}

// isMissing reports whether the error means that the kernel lacks the feature.
func isMissing(err error) bool { return IsNotSupported(err) || errors.Is(err, fs.ErrNotExist) }

// addMissingFeatures adds to err an error for each feature of iptables-legacy that the ruleset
// needs and the kernel lacks. It returns err unchanged if err is nil, if missing privileges or
// concurrent changes are its cause, or if the features cannot be probed.
func addMissingFeatures(err error, rs rules.Ruleset) error {
	if err == nil || IsNotPermitted(err) || errors.Is(err, xtables.ErrChanged) {
		return err
	}
	support, probeErr := ProbeLegacy(rs)
	if probeErr != nil {
		return err
	}
	for _, s := range support {
		if s.Err != nil {
			err = errors.Join(err, s.Err)
		}
	}
	return err
}

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

// since returns the first kernel version that supports the feature, but at least firstVersion.
func since(f xtables.Feature) string {
	isTarget := f.Kind == xtables.KindTarget
	switch {
	case f.Family == rules.IPv6 && (f.Kind == xtables.KindTable && f.Name == "nat" ||
		isTarget && f.Name == "REDIRECT"):
		return "3.7"
	case isTarget && f.Name == "CT":
		return "3.4"
	}
	return firstVersion
}
