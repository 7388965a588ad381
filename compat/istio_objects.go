package compat

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// FindIstioObjects returns one line for each object that RemoveIstioObjects would delete if
// Sluice's own rules and routes were already deleted. The lines are valid even if it also returns
// an error. policy is the policy route that istio-iptables was configured to add.
func FindIstioObjects(ns *netns.NS, policy rules.PolicyRoute) ([]string, error) {
	tables, err := nft.FindIstio(ns)
	if isUnsupported(err) {
		err = nil
	}
	legacy, legacyErr := FindLegacyIstio(ns)
	routes, routesErr := route.FindIstio(ns, policy, rules.Routing{})
	return slices.Concat(tables, legacy, routes), errors.Join(err, legacyErr, routesErr)
}

// RemoveIstioObjects deletes the rules of Istio's programs in nf_tables and in iptables-legacy, and
// their routes, in the namespace (nil: the current one). It returns one line for each deleted
// object, even if it also returns an error. It deletes the rules first, because they need the
// routes, and keeps the routes if this fails.
func RemoveIstioObjects(ns *netns.NS, policy rules.PolicyRoute) ([]string, error) {
	tables, err := nft.RemoveIstio(ns)
	if isUnsupported(err) {
		err = nil
	}
	legacy, legacyErr := RemoveLegacyIstio(ns)
	removed := slices.Concat(tables, legacy)
	if err = errors.Join(err, legacyErr); err != nil {
		return removed, err
	}
	routes, err := route.PruneIstio(ns, policy, rules.Routing{})
	return append(removed, routes...), err
}

// isUnsupported reports whether the error means that the kernel has no nf_tables, and therefore no
// rules in it. FindLegacyIstio and RemoveLegacyIstio need no such check, because they return no
// error if the kernel has no iptables-legacy.
func isUnsupported(err error) bool {
	var unsupported *nft.UnsupportedError
	return errors.As(err, &unsupported)
}
