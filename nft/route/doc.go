// Package route programs the routing of a redirection: policy routes that deliver marked packets
// locally, for TPROXY, and the address ::6 on the loopback interface.
//
// [Ensure] adds the missing parts of a [rules.Routing] to a network namespace and returns the
// [Change]. [Change.Rollback] undoes it if the following change of rules fails, and [Change.Finish]
// completes it otherwise. [InSync] is a fast check that a namespace has a routing; [Read] returns
// the routing of a namespace. [Prune] removes unwanted parts, and [Find] lists them. [PruneIstio]
// and [FindIstio] do the same for the routing of istio-iptables and istio-cni.
//
//	ruleset, err := rules.Compile(redirect)
//	if err != nil {
//		return err
//	}
//	change, err := route.Ensure(ns, ruleset.Routing)
//
// # Ownership
//
// This package owns the policy rules of priority [rules.PolicyPriority] of the form "fwmark MARK
// lookup TABLE", with or without a mask and with no other selector, and the route "local default
// dev lo" in their tables. The owner of the address ::6 is unknown, because Istio adds the same
// address. Other rules with that priority and other routes in those tables are foreign: Read
// reports them, and no function removes them.
//
// # Order
//
// A policy rule is added before its route and removed after it. If a process is killed in between,
// Prune finds the route by the remaining rule. A rule without its route, or a route without its
// rule, does not affect packets.
//
// The functions are safe for concurrent use, including by several processes in one namespace. A nil
// namespace is the namespace of the calling thread.
package route
