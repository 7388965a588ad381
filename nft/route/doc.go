// Package route programs what redirection needs of the routing tables: policy
// routes that make marked packets local, and ::6 on the loopback interface.
//
// It owns the policy rules of priority [rules.PolicyPriority] that have the form
// "fwmark MARK lookup TABLE", with all bits of the mark compared and nothing
// else asked, and the route "local default dev lo" in their tables. Whose an
// address ::6 is cannot be told: Istio adds the same. What else is at that
// priority and in those tables is another's: [Read] tells it, nobody here
// removes it.
//
// A rule is added before its route and removed after it, so that whatever a
// process leaves behind when it is killed has a rule by which [Prune] finds it.
// Either half does nothing alone.
//
// The functions are safe for concurrent use, also by several processes on one
// namespace; a nil *netns.NS is the namespace of the calling thread.
package route
