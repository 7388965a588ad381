// Package rules is the declarative model of a mesh pod's traffic redirection.
//
// The parameters of a redirection (a [Redirect], in Istio's terms) compile into a [Ruleset]: tables, chains and rules
// with typed matches and actions, and the policy routes that belong to them. Backends encode a Ruleset for the kernel
// and decode the kernel's state into one, so that everything that reasons about rules reasons about this model:
// [Ruleset.Explain] tells what happens to a [Packet] and which rules decide, [Compare] what two rulesets differ in.
//
// The package is pure: it makes no system call, reads no environment, and knows neither netlink nor iptables' formats.
// All its functions are safe for concurrent use as long as nobody changes the values they are given.
package rules
