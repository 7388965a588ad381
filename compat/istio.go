package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// istioTables contains the names of the tables to which istio-iptables adds rules.
var istioTables = []string{"filter", "nat", "mangle", "raw"}

// maxAttempts is the maximum number of attempts to replace a table while other processes change it.
const maxAttempts = 20

// RemoveLegacyIstio deletes the rules that istio-iptables added with iptables-legacy in the
// namespace (nil: the current one). It changes each table atomically. Package [istio] describes how
// Istio's rules are identified. Foreign rules keep their order and counters. RemoveLegacyIstio
// neither creates tables nor deletes empty ones.
//
// It returns one line for each deleted object, even if it also returns an error. If a table cannot
// be replaced, RemoveLegacyIstio continues with the next table. It needs the privileges of
// [xtables.Tables] and [xtables.Replace].
func RemoveLegacyIstio(ns *netns.NS) ([]string, error) {
	return inEachTable(ns, "remove", removeFromTable)
}

// FindLegacyIstio returns one line for each object that RemoveLegacyIstio would delete, even if it
// also returns an error. It needs the privileges of [xtables.Tables] and [xtables.Read].
func FindLegacyIstio(ns *netns.NS) ([]string, error) {
	return inEachTable(ns, "find", findInTable)
}

// inEachTable calls inTable for each existing table in istioTables, and returns the lines and the
// errors of all calls. Each error begins with verb.
func inEachTable(
	ns *netns.NS, verb string, inTable func(*netns.NS, xtables.ID) ([]string, error),
) ([]string, error) {
	tables, err := xtables.Tables(ns)
	if err != nil {
		return nil, fmt.Errorf("%s Istio's rules: %w", verb, err)
	}
	var lines []string
	var errs []error
	for _, id := range tables {
		if !slices.Contains(istioTables, id.Name) {
			continue
		}
		found, err := inTable(ns, id)
		lines = append(lines, found...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s Istio's rules: %w", verb, err))
		}
	}
	return lines, errors.Join(errs...)
}

// findInTable returns a line for each rule and each chain of Istio in a table.
func findInTable(ns *netns.NS, id xtables.ID) ([]string, error) {
	_, found, err := readWithIstio(ns, id)
	return linesOf(found), err
}

// readWithIstio returns a table and the positions of Istio's rules and chains in it.
func readWithIstio(ns *netns.NS, id xtables.ID) (*xtables.Table, istio.Leftovers, error) {
	t, err := xtables.Read(ns, id.Family, id.Name)
	if err != nil {
		return nil, istio.Leftovers{}, err
	}
	return t, istio.Find(DecodeTable(t)), nil
}

// linesOf returns a line with the prefix "iptables-legacy" for each rule and each chain.
func linesOf(found istio.Leftovers) []string {
	lines := found.Lines()
	for i := range lines {
		lines[i] = "iptables-legacy " + lines[i]
	}
	return lines
}

// removeFromTable deletes Istio's rules and chains from a table, and returns a line for each.
func removeFromTable(ns *netns.NS, id xtables.ID) (removed []string, err error) {
	for range maxAttempts {
		var t *xtables.Table
		var found istio.Leftovers
		if t, found, err = readWithIstio(ns, id); err != nil || found.IsZero() {
			return removed, err
		}
		lines := linesOf(found)
		deleteIstio(t, found)
		err = xtables.Replace(ns, t)
		if replaced := (*xtables.ReplacedError)(nil); err == nil || errors.As(err, &replaced) {
			removed = append(removed, lines...)
		}
		if !errors.Is(err, xtables.ErrChanged) {
			return removed, err
		}
	}
	return removed, fmt.Errorf("gave up after %d attempts: %w", maxAttempts, err)
}

// deleteIstio deletes the found rules and chains from t.
func deleteIstio(t *xtables.Table, found istio.Leftovers) {
	isIstio := map[istio.Position]bool{}
	for _, p := range found.Rules {
		isIstio[p] = true
	}
	for i := range t.Chains {
		c := &t.Chains[i]
		var kept []xtables.Rule
		for j, r := range c.Rules {
			if !isIstio[istio.Position{Chain: i, Rule: j}] {
				kept = append(kept, r)
			}
		}
		c.Rules = kept
	}
	names := map[string]bool{}
	for _, i := range found.Chains {
		names[t.Chains[i].Name] = true
	}
	t.DeleteChains(func(name string) bool { return names[name] })
}

// FindIstioObjects returns one line for each object that RemoveIstioObjects would delete if
// Sluice's own rules and routes were already deleted. The lines are valid even if it also returns
// an error. policy is the policy route that istio-iptables was configured to add.
func FindIstioObjects(ns *netns.NS, policy rules.PolicyRoute) ([]string, error) {
	tables, err := nft.FindIstio(ns)
	legacy, legacyErr := FindLegacyIstio(ns)
	routes, routesErr := route.FindIstio(ns, policy, rules.Routing{})
	return slices.Concat(tables, legacy, routes),
		errors.Join(exceptUnsupported(err), legacyErr, routesErr)
}

// RemoveIstioObjects deletes the rules of Istio's programs in nf_tables and in iptables-legacy, and
// their routes, in the namespace (nil: the current one). It returns one line for each deleted
// object, even if it also returns an error. It deletes the rules first, because they need the
// routes, and keeps the routes if this fails.
func RemoveIstioObjects(ns *netns.NS, policy rules.PolicyRoute) ([]string, error) {
	tables, err := nft.RemoveIstio(ns)
	legacy, legacyErr := RemoveLegacyIstio(ns)
	removed := slices.Concat(tables, legacy)
	if err = errors.Join(exceptUnsupported(err), legacyErr); err != nil {
		return removed, err
	}
	routes, err := route.PruneIstio(ns, policy, rules.Routing{})
	return append(removed, routes...), err
}

// exceptUnsupported returns err, or nil if err means that the kernel has no nf_tables, and
// therefore no rules in it. FindLegacyIstio and RemoveLegacyIstio return no error if the kernel has
// no iptables-legacy.
func exceptUnsupported(err error) error {
	if unsupported := (*nft.UnsupportedError)(nil); errors.As(err, &unsupported) {
		return nil
	}
	return err
}
