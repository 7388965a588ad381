// Package foreign decides what rules of other owners in a network namespace do to the traffic that
// a ruleset of ours captures: whether packets bypass the proxy, by which rule, and whose rule that
// is.
//
// The answer is the one of [diff.Bypass], for all packets that the ruleset captures: the ruleset
// alone is compared with everything that is live in the namespace, of every backend and table.
// Rules of others that drop packets, or capture more, make no bypass. What cannot be decided is
// said to be unknown, with the reason.
package foreign
