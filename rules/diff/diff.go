package diff

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Side is one of the two rulesets.
type Side struct {
	// Ruleset contains all tables and routes of the namespace, compiled or read from it. Base
	// chains of a hook are evaluated in the order of [rules.Ruleset.BaseChains].
	Ruleset rules.Ruleset
	// RoutingKnown reports whether Ruleset.Routing is the routing of this side. It is false for a
	// file of rules, which contains no routes: packets are then routed as on the other side, and
	// routing is not compared. If the routing of neither side is known, a changed mark does not
	// change the route of a packet.
	RoutingKnown bool
	// Redirect contains the parameters from which the ruleset was compiled, or is nil. The result
	// names known deviations only for a ruleset with parameters.
	Redirect *rules.Redirect
	// Ambient contains the parameters from which the ruleset of a pod in ambient mode was compiled,
	// and AmbientHost the parameters from which the ruleset of a node was compiled. They are nil
	// for other rulesets.
	Ambient     *rules.Ambient
	AmbientHost *rules.AmbientHost
}

// Options are the options of a decision.
type Options struct {
	// MaxClasses is the maximum number of classes of differing packets in the result; 0 means
	// DefaultMaxClasses.
	MaxClasses int
	// Families are the address families to compare. Empty means IPv4 and IPv6.
	Families []rules.Family
	// HostAddresses are the addresses of the host, except loopback addresses, or nil if they are
	// unknown. Only [Bypass] uses them: it assumes that the destination of packets over lo is one
	// of them or a loopback address.
	HostAddresses []netip.Addr
	// Budget limits the work.
	Budget Budget
}

// DefaultMaxClasses is the default of Options.MaxClasses.
const DefaultMaxClasses = 20

// MaxUndecided is the maximum length of Result.Undecided.
const MaxUndecided = 100

// A Result is the result of a decision.
type Result struct {
	// Classes are the disjoint sets of packets whose outcomes differ (see [rules.Outcome.Same]),
	// sorted by the length of the description, with known deviations last. They include packets
	// whose outcome is undecided only if the outcomes differ for all values of the unknowns.
	Classes []Class
	// More is set if there are more classes than MaxClasses.
	More bool
	// Undecided lists the reasons why the outcome of packets is unknown: expressions that the model
	// does not support, and facts that the kernel does not report.
	Undecided []Undecided
	// MoreUndecided is set if there are more than MaxUndecided reasons.
	MoreUndecided bool
	// UntrackedUndecided is set if packets that enter untracked, such as packets that tc or a dup
	// rule sends, were compared only in part: it is unknown how the kernel treats such a packet
	// after a rule has assigned a zone to it.
	UntrackedUndecided bool
	// Exhausted names the limit of the budget that was reached. If it is not empty, nothing is
	// decided.
	Exhausted string
	// Routing lists the differences of the policy routes and loopback addresses of the two sides:
	// Want is the value of the left side, and Got is the value of the right side. The priorities of
	// two policy rules count as equal if both rules precede, or both follow, the rule of the main
	// table.
	Routing []rules.Difference
	// RoutingCompared reports whether the routing of both sides is known.
	RoutingCompared bool
	// Unreachable lists the user-defined chains of each side that no packet reaches, including
	// chains without a jump to them. It is empty for a side with undecided packets, even if the
	// unsupported rules are the same on both sides. It is empty for both sides if the budget was
	// exhausted, if there are more than MaxUndecided reasons, or if both rulesets are identical and
	// their evaluation would take long.
	Unreachable Pair[[]rules.ChainRef]
	// OtherHooks lists the base chains of each side at hooks other than prerouting and output that
	// have rules or drop packets. Their effect is not compared, except at postrouting on packets
	// that the host sends.
	OtherHooks Pair[[]rules.ChainRef]
}

// Verdict is the summary of a result.
type Verdict string

// The verdicts.
const (
	Equivalent  Verdict = "equivalent"
	Different   Verdict = "different"
	Undecidable Verdict = "cannot decide"
)

// Verdict summarizes the result. A difference takes precedence over undecided packets. Known
// deviations do not count as differences. Classes that the result omits (see Result.More) do not
// change the verdict, because known deviations are omitted first.
func (r *Result) Verdict() Verdict {
	isUnexplained := func(c Class) bool { return len(c.Deviations) == 0 }
	return r.summarize(slices.ContainsFunc(r.Classes, isUnexplained))
}

// StrictVerdict is like Verdict, but known deviations count as differences.
func (r *Result) StrictVerdict() Verdict { return r.summarize(len(r.Classes) > 0) }

// summarize returns the verdict. differs reports whether a class of the result counts as a
// difference.
func (r *Result) summarize(differs bool) Verdict {
	switch {
	case len(r.Routing) > 0 || differs:
		return Different
	case len(r.Undecided) > 0 || r.Exhausted != "":
		return Undecidable
	}
	return Equivalent
}

// A Pair contains a value of the left and of the right side.
type Pair[T any] struct{ Left, Right T }

// A Class is a set of packets that the two sides treat differently in one way.
type Class struct {
	// Packets describes the set: the packets that meet all the conditions.
	Packets []Condition
	// Witness is a packet of the set.
	Witness rules.Packet
	// Outcome is the effect of each side on the witness.
	Outcome Pair[SideOutcome]
	// Deviations are the known deviations that explain the difference: if they are disabled, the
	// packets have the same outcome. It is empty if the difference is not a known deviation.
	Deviations []rules.DeviationID

	space *space
	box   box
	// redirects reports whether a side redirects the packets.
	redirects bool
	// entersUntracked and sentByKernel contain the packets of the space that may be outside of the
	// scope of the comparison: packets that enter untracked, and packets that the kernel sends.
	entersUntracked, sentByKernel set
	// retranslated contains the packets of the space whose destination is translated as for earlier
	// packets of their connection.
	retranslated set
}

// A Condition limits one field of a packet.
type Condition struct {
	// Field is "hook", "family", "protocol", "source", "destination", "source port", "destination
	// port", "translated destination", "translated port", "interface", "user", "group", "mark",
	// "connection mark", "state", "direction", "status", "flags", "icmp type and code", "listener",
	// "destination type", "source type" or "address of the interface". It may also be something
	// outside the packet, such as the text of a limit; Values is then "yes" or "no".
	Field string
	// Values are the allowed values in nft's syntax: "443", "not 10.0.0.0/8", "1337", "& 0xff ==
	// 0x39". The values of "user" include "no socket", and "any", which means a socket of any user.
	// The values of "listener" are "listens" and "none listens".
	Values string
}

// A SideOutcome is the outcome of one side for a packet.
type SideOutcome struct {
	Outcome rules.Outcome
	// IfNoneTrue is the outcome if no unknown condition is true. It is nil unless the outcome is
	// undecided on both sides.
	IfNoneTrue *rules.Outcome
	// Decided is the rule that determines the part of the outcome in which the sides differ: the
	// rule that set it, or the last rule that ended a chain in which other rules could have set it.
	// It is nil if no rule determines it; then Reason names the policy, the kernel's behavior or
	// the missing socket.
	Decided *rules.Step
	Reason  string
}

// An Undecided is a reason why an outcome is unknown: a match, target or expression that the model
// does not support, or a fact that the kernel does not report.
type Undecided struct {
	// Right reports whether the reason belongs to the right side.
	Right bool
	// Text describes the reason.
	Text string
	// Step is the rule that contains the unsupported match or action. It may also be a jump to a
	// missing chain, or a jump of a cycle. Step.Chain is nil if the reason does not belong to a
	// rule.
	Step rules.Step
	// Witness is a packet whose outcome is unknown.
	Witness rules.Packet
}
