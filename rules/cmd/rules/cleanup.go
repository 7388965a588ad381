package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func newCleanupCommand(s *system) *cobra.Command {
	in := &inputs{sections: []section{
		sectionCleanup, sectionMode, sectionTProxy, sectionNamespace, sectionBackend, sectionDryRun,
		sectionOutput,
	}}
	return s.command("cleanup [FLAG]...", "remove the redirection", in,
		func(p *parameters, _ []string) error {
			return p.inNamespace(func(ns *netns.NS) error { return cleanup(s, ns, p) })
		})
}

// cleanupResult is the result of cleanup.
type cleanupResult struct {
	Namespace string   `json:"namespace"`
	DryRun    bool     `json:"dryRun"`
	Removed   []string `json:"removed"`
}

func (cleanupResult) kind() string { return "Cleanup" }

// cleanup runs the command in the namespace.
func cleanup(s *system, ns *netns.NS, p *parameters) error {
	removeOwn, removeIstio := s.removeOwn, compat.RemoveIstioObjects
	if p.dryRun {
		removeOwn, removeIstio = s.previewOwn, compat.FindIstioObjects
	} else {
		s.removeStaleTrace(ns)
	}
	backends, err := p.backends()
	if err != nil {
		return err
	}
	lines, err := removeOwn(ns, compat.Backends(), backends)
	if p.istio && err == nil {
		var extra []string
		extra, err = removeIstio(ns, p.istioPolicy())
		lines = append(lines, extra...)
	}
	if err != nil && len(lines) == 0 {
		return systemError(err)
	}
	c := cleanupResult{
		Namespace: ns.String(), DryRun: p.dryRun, Removed: append([]string{}, lines...),
	}
	return errors.Join(s.print(c.text(), c), systemError(err))
}

// routingWithoutRules returns the routing to keep in a namespace without rules of Sluice: the
// address ::6, which may be Istio's.
func routingWithoutRules() rules.Routing {
	return rules.Routing{LoopbackAddrs: []netip.Addr{rules.PassthroughIPv6()}}
}

// previewOwn lists the rules and routes that removeOwn would remove from the selected backends. It
// prints a warning if it may not read iptables-legacy and only rules in nf_tables would be removed,
// because removeOwn then assumes that no rules in iptables-legacy need the routes.
func (s *system) previewOwn(ns *netns.NS, all, selected []compat.Backend) ([]string, error) {
	lines, ignored, err := findOwn(ns, all, selected)
	if ignored != nil {
		s.warn("whether iptables-legacy contains rules of Sluice, which need the routes, is "+
			"unknown: %v", ignored)
	}
	return lines, err
}

// findOwn lists Sluice's rules in the selected backends, and its routes unless another backend
// needs them or cannot be read. ignored is the error of a missing permission to read
// iptables-legacy, if this backend is not selected: without the permission, the process cannot have
// written rules there either.
func findOwn(
	ns *netns.NS, all, selected []compat.Backend,
) (lines []string, ignored, err error) {
	keep, routesNeeded := routingWithoutRules(), false
	for _, b := range all {
		isSelected := slices.Contains(selected, b)
		found, readErr := b.Read(ns)
		switch {
		case compat.IsNotSupported(readErr):
			continue
		case readErr != nil && !isSelected && b.Name() == compat.BackendLegacy &&
			compat.IsNotPermitted(readErr):
			ignored = readErr
		case readErr != nil:
			err = errors.Join(err, readErr)
			routesNeeded = routesNeeded || !isSelected
		case len(found.Tables) == 0: // nothing to list
		case isSelected:
			keep = rules.Routing{}
			lines = append(lines, contents(b, found)...)
		default:
			routesNeeded = true
		}
	}
	if routesNeeded {
		return lines, ignored, err
	}
	routes, findErr := route.Find(ns, keep)
	return append(lines, routes...), ignored, errors.Join(err, findErr)
}

// removeOwn removes Sluice's rules and routes, and returns the names of the removed objects. If it
// cannot remove an object, it returns an error with the names of the removed objects. It returns no
// names if the remaining objects cannot be read.
func (s *system) removeOwn(ns *netns.NS, all, selected []compat.Backend) ([]string, error) {
	// Rules that cannot be read can still be removed.
	lines, _, unread := findOwn(ns, all, selected)
	var faults []error
	removed := false
	// Removing the last rules also removes the routes. nft, which usually has the rules, comes
	// last.
	for _, b := range slices.Backward(selected) {
		done, err := b.Remove(ns)
		removed = removed || done
		faults = append(faults, err)
	}
	err := errors.Join(faults...)
	switch {
	case !removed:
		return nil, err
	case unread != nil:
		return []string{"rules of Sluice"}, err // it is not known which
	case err != nil:
		remaining, _, unread := findOwn(ns, all, selected)
		if unread != nil {
			return nil, errors.Join(err, unread)
		}
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return slices.Contains(remaining, l)
		})
	}
	return lines, err
}

// istioPolicy returns the policy route of Istio's programs.
func (p *parameters) istioPolicy() rules.PolicyRoute {
	if p.AmbientMode {
		return rules.IstioAmbientPolicy()
	}
	return rules.PolicyRoute{Mark: p.Redirect.TProxyMark, Table: p.Redirect.TProxyRouteTable}
}

// contents returns the names of the tables with Sluice's rules in a backend, and the numbers of
// their rules.
func contents(b compat.Backend, rs rules.Ruleset) []string {
	prefix := ""
	if b.Name() == compat.BackendLegacy {
		prefix = b.Name().String() + " "
	}
	var names []string
	for _, t := range rs.Tables {
		names = append(names, fmt.Sprintf("%stable %s %s with %s", prefix, t.Family, t.Name,
			count(t.CountRules(), "rule")))
	}
	return names
}

// text lists the removed objects.
func (c cleanupResult) text() string {
	if len(c.Removed) == 0 {
		return fmt.Sprintf("nothing to remove in %s\n", c.Namespace)
	}
	heading := "removed from "
	if c.DryRun {
		heading = "would be removed (dry run) from "
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s%s:\n", heading, c.Namespace)
	for _, line := range c.Removed {
		fmt.Fprintf(b, "  %s\n", rules.Printable(line))
	}
	return b.String()
}
