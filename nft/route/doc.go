// Package route programs what a redirection needs of the routing tables: policy routes that
// deliver marked packets locally, for TPROXY, and the address ::6 on the loopback interface.
//
// [Ensure] makes a [rules.Routing] that of a network namespace and returns the [Change]. [Holds]
// reports whether it is there, by a fast check; [Read] returns what is there. [Prune] removes
// what is not wanted, [Find] lists it. [PruneIstio] and [FindIstio] do the same for the policy
// routes of istio-init. [Around] adds routes before a change of rules and removes others after
// it.
//
//	ruleset, err := rules.Compile(redirect)
//	if err != nil {
//		return err
//	}
//	change, err := route.Ensure(ns, ruleset.Routing)
//
// # Ownership
//
// Ours are the policy rules of priority [rules.PolicyPriority] of the form "fwmark MARK lookup
// TABLE", with all bits of the mark compared and no other selector, and the route "local default
// dev lo" in their tables. The owner of the address ::6 cannot be told: Istio adds the same.
// Anything else at that priority and in those tables belongs to others: Read reports it, and no
// function removes it.
//
// # Order
//
// A policy rule is added before its route and removed after it. A process that is killed in
// between leaves a rule by which Prune finds the rest; one without the other has no effect on
// packets.
//
// The functions are safe for concurrent use, also by several processes in one namespace. A nil
// namespace is the calling thread's.
package route
