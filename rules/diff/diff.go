package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Side is one of the two rulesets.
type Side struct {
	// Ruleset is all that decides about the packets of a namespace, as compiled or as read. Where
	// base chains of a hook have equal priority, the order of the tables is that in which the
	// kernel runs them.
	Ruleset rules.Ruleset
	// RoutingKnown reports that Ruleset.Routing is what the side has. A file of rules says nothing
	// of routes: then packets are routed as on the other side, and routing is not compared. If
	// neither is known, a changed mark leads no packet anywhere else.
	RoutingKnown bool
	// Redirect is what the ruleset was compiled from, nil if it was not. With it a difference that
	// is a known deviation is named.
	Redirect *rules.Redirect
}

// Options adjust a decision.
type Options struct {
	// MaxClasses is how many classes of packets that differ are described at most; 0 stands for
	// DefaultMaxClasses.
	MaxClasses int
	// Families are the families whose packets are compared. Empty means IPv4 and IPv6.
	Families []rules.Family
	// Budget bounds the work.
	Budget Budget
}

// DefaultMaxClasses is how many classes are described unless an option says otherwise: more than a
// person reads.
const DefaultMaxClasses = 20

// MostUndecided is how many things that are not known are listed.
const MostUndecided = 100

// A Result is what was decided.
type Result struct {
	// Classes are packets whose outcomes differ (see [rules.Fate.Same]), those with the smallest
	// description first, named deviations last. None of them shares a packet with another. Nothing
	// is said of packets that are undecided on a side.
	Classes []Class
	// More reports that there are more classes than were asked for.
	More bool
	// Undecided is what is not known and decides about packets: what the model has no word for, or
	// what the kernel does not tell. Nothing is said of these packets.
	Undecided []Undecided
	// MoreUndecided reports that there are more than the MostUndecided which are listed.
	MoreUndecided bool
	// UntrackedOpen reports that packets that enter untracked, as copies and packets of a filter of
	// tc do, were compared in part only: what the kernel does with those to which a rule gives a
	// zone is not known.
	UntrackedOpen bool
	// Exhausted names the limit of the budget that was reached, if one was: then nothing is known.
	Exhausted string
	// Routing lists differences of policy routes and loopback addresses: Want is what the left side
	// has, Got the right. The priority of a policy rule is not compared, if both come before the
	// main table. RoutingCompared reports whether both sides are known.
	Routing         []rules.Difference
	RoutingCompared bool
	// Unreachable are the chains of each side that no packet reaches, be it that nothing jumps to
	// them. Base chains are not listed, and none of a side on which something is undecided.
	Unreachable Pair[[]rules.ChainRef]
	// Elsewhere are the base chains of each side at other hooks than prerouting and output that
	// have rules or drop. What they do to packets is not compared.
	Elsewhere Pair[[]rules.ChainRef]
}

// Verdict is the answer in a word.
type Verdict string

// The answers.
const (
	Equivalent  Verdict = "equivalent"
	Different   Verdict = "different"
	Undecidable Verdict = "cannot decide"
)

// Verdict tells what was decided: a difference that is found outweighs what is undecided. Known
// deviations count only if strict. Differences without a name are listed before those with one, so
// that none of them is after the end of the list if all that are listed have a name.
func (r *Result) Verdict(strict bool) Verdict {
	differs := func(c Class) bool { return strict || len(c.Deviations) == 0 }
	switch {
	case len(r.Routing) > 0, slices.ContainsFunc(r.Classes, differs):
		return Different
	case len(r.Undecided) > 0 || r.Exhausted != "":
		return Undecidable
	}
	return Equivalent
}

// A Pair has something of the left and of the right side.
type Pair[T any] struct{ Left, Right T }

// A Class is a set of packets that the two sides treat differently, all in the same way.
type Class struct {
	// Packets describes the set: the packets that fulfil all the conditions.
	Packets []Condition
	// Witness is one of them.
	Witness rules.Packet
	// Outcome is what each side does to the witness.
	Outcome Pair[Outcome]
	// Deviations name what explains the difference: with all of them off, on each side that has
	// them, there is none. Empty if nothing does.
	Deviations []rules.DeviationID

	space *space
	box   box
	// redirects reports that a side redirects the packets.
	redirects bool
}

// A Condition is what one part of a packet is.
type Condition struct {
	// Field is the part: "hook", "family", "protocol", "source", "destination", "source port",
	// "destination port", "interface", "user", "group", "mark", "connection mark", "state",
	// "direction", "status", "flags", "icmp type and code", "listener", "destination type", "source
	// type" or "address of the interface"; or what decides besides the packet, such as the text of a
	// rule's limit, with the value "yes" or "no".
	Field string
	// Values says which values it has, in the words of nft: "443", "not 10.0.0.0/8", "1337", "&
	// 0xff == 0x39". A user may be "no socket" or "any", which is any socket's; a listener
	// "listens" or "none listens".
	Values string
}

// An Outcome is what a side does to a packet.
type Outcome struct {
	Fate rules.Fate
	// Decided is the rule that made the fate what it is, where it differs from the other side's:
	// the one that did it, or else the last that ended a chain in which others might have. Nil if
	// no rule did; then Reason names the policy, or what the kernel does whatever the rules say, or
	// the socket that is missing.
	Decided *rules.Step
	Reason  string
}

// An Undecided is a match, target or expression without a word in the model.
type Undecided struct {
	// Right tells on which side it is.
	Right bool
	// Text names it.
	Text string
	// Step is the rule it is in, which may be a jump to nowhere or in a circle; its Chain is nil if
	// it is not a rule. Witness is a packet that meets it.
	Step    rules.Step
	Witness rules.Packet
}
