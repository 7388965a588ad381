package foreign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A Verdict is the summary of an effect.
type Verdict string

// The verdicts.
const (
	None     Verdict = "none"    // no captured packet bypasses the proxy
	Bypassed Verdict = "bypass"  // some captured packets bypass the proxy
	Unknown  Verdict = "unknown" // it is unknown whether captured packets bypass the proxy
)

// An Effect is the effect of foreign rules on captured traffic.
type Effect struct {
	// Bypasses contains classes of packets that bypass the proxy: classes of IPv4, then of IPv6,
	// each sorted by the length of their descriptions. More is set if there are further classes.
	Bypasses []Bypass `json:"bypasses"`
	More     bool     `json:"more,omitempty"`
	// Unknown contains the reasons why the outcome of captured packets is unknown, as sentences.
	Unknown []string `json:"unknown"`
	// Exhausted is set if the budget was used up, or if the rules could not be read. Another
	// attempt may succeed.
	Exhausted bool `json:"exhausted,omitempty"`
	// LoopbackMissing is set if the only reason in Unknown is that packets to loopback addresses do
	// not have their local routes. A runtime that removes a sandbox causes this too, because it
	// disables the loopback interface first.
	LoopbackMissing bool `json:"-"`
	// Bridges is the reason in Unknown about ports of bridges, and SynCookies the reason about SYN
	// cookies; empty if there is none.
	Bridges    string `json:"-"`
	SynCookies string `json:"-"`
}

// newEffect returns an effect with the reasons that are known before the rules are evaluated.
func newEffect(live *compat.Live, desired *rules.Ruleset) Effect {
	reasons, delivery := unknownEffects(live, desired), unknownDelivery(live, desired)
	bridges, synCookies := unknownBridges(live, desired), unknownSynCookies(live, desired)
	for _, reason := range []string{bridges, synCookies} {
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return Effect{
		Bypasses: []Bypass{}, Unknown: append(reasons, delivery...),
		Bridges: bridges, SynCookies: synCookies,
		LoopbackMissing: len(reasons) == 0 && len(delivery) > 0 && isLoopbackMissing(live),
	}
}

// Verdict returns [Bypassed] if there is a bypass, or else [Unknown] if an outcome is unknown, or
// else [None].
func (e *Effect) Verdict() Verdict {
	switch {
	case len(e.Bypasses) > 0:
		return Bypassed
	case len(e.Unknown) > 0:
		return Unknown
	}
	return None
}

// Messages returns a message for each bypass. If there are no bypasses, it returns Unknown.
func (e *Effect) Messages() []string {
	if len(e.Bypasses) == 0 {
		return e.Unknown
	}
	var messages []string
	for _, b := range e.Bypasses {
		messages = append(messages, b.String())
	}
	if e.More {
		messages = append(messages, "more classes of packets bypass the proxy than are listed")
	}
	return messages
}

// A Bypass is a class of packets that the ruleset captures and that do not reach the proxy.
type Bypass struct {
	// Packets describes the class, and Witness is an example of its packets.
	Packets string `json:"packets"`
	Witness string `json:"witness"`
	// Desired is the outcome of the example with the desired ruleset alone, and Live its outcome
	// with all live rules.
	Desired string `json:"desired"`
	Live    string `json:"live"`
	// Rule is the rule that determines the live outcome, with its table and chain. If no rule
	// determines it, Rule is empty and Reason is the cause.
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Owner is the owner of Rule, or empty if Rule is empty.
	Owner Owner `json:"owner,omitempty"`
}

// String describes the bypass in a sentence.
func (b Bypass) String() string {
	by := b.Reason
	if b.Rule != "" {
		by = fmt.Sprintf("rule of %s: %s", b.Owner, b.Rule)
	}
	return fmt.Sprintf(
		"%s bypass the proxy (for example %s: %s; without foreign rules: %s); decided by %s",
		b.Packets, b.Witness, b.Live, b.Desired, by)
}

// An Owner is the kind of program that created a rule.
type Owner string

// The owners.
const (
	OwnerSluice      Owner = "sluice"
	OwnerNFT         Owner = "nft"
	OwnerIPTablesNFT Owner = "iptables-nft"
	OwnerLegacy      Owner = "iptables-legacy"
)

// OwnerOf returns the owner of the rule of a step in a ruleset, which must be a result of
// [compat.ReadLive]. Chains of iptables-legacy with the names of Sluice's chains are Sluice's only
// if Sluice has no table in nf_tables: any program can choose the names, and the audit does not
// compare these chains with the desired ruleset if that table exists.
func OwnerOf(rs *rules.Ruleset, step *rules.Step) Owner {
	switch t := step.Table; {
	case compat.IsSluiceTable(t):
		return OwnerSluice
	case compat.IsLegacySluiceTable(t) && compat.IsSluiceChain(step.Chain.Name) &&
		!hasSluiceTable(rs):
		return OwnerSluice
	case compat.IsLegacyTable(t):
		return OwnerLegacy
	case t.Comment == string(compat.OriginIPTablesNFT):
		return OwnerIPTablesNFT
	}
	return OwnerNFT
}

// maxClasses is the maximum number of classes in an effect.
const maxClasses = 3

// Decide returns the effect of the foreign rules in a namespace on the traffic that the desired
// ruleset captures. live contains all rules of the namespace, including Sluice's rules, which must
// be as desired. Sluice's rules in iptables-legacy count as the desired ruleset; see
// installedRules. While Decide runs, it changes the order of the chains in live.Ambiguous. The
// budget bounds the total work.
func Decide(live compat.Live, desired rules.Ruleset, b diff.Budget) Effect {
	filtered, _ := withoutFilters(&live)
	installed := installedRules(&live.Ruleset, &desired)
	return decide(&live, &desired, &installed, b, affectedFamilies(&filtered))
}

// decideAll is like [Decide], but does not assume that Sluice's rules are the desired ruleset.
func decideAll(live compat.Live, desired rules.Ruleset, b diff.Budget) Effect {
	return decide(&live, &desired, &desired, b, []rules.Family{rules.IPv4, rules.IPv6})
}

// decide returns the effect of the live rules on the packets of the families. The rules that
// withoutFilters removes are evaluated only if packets may bypass the proxy without them.
func decide(
	live *compat.Live, desired, installed *rules.Ruleset, b diff.Budget, families []rules.Family,
) Effect {
	e := newEffect(live, desired)
	if len(families) == 0 {
		return e
	}
	filtered, differs := withoutFilters(live)
	options := diff.Options{
		MaxClasses: maxClasses, Budget: b.From(time.Now()), HostAddresses: live.Addresses,
	}
	for _, f := range families {
		options.Families = []rules.Family{f}
		found := evaluate(&filtered, installed, options)
		if differs && found.Verdict() != None {
			found = evaluate(live, installed, options)
		}
		e.add(&found)
	}
	return e
}

// evaluate compares the outcomes of packets with the live rules to their outcomes with the
// installed rules alone. o.Families contains the only family of the packets.
func evaluate(live *compat.Live, installed *rules.Ruleset, o diff.Options) Effect {
	var e Effect
	ambiguous := ofFamily(live.Ambiguous, o.Families[0])
	setOrders, ok := ordersOf(ambiguous)
	if !ok {
		e.addAmbiguous(ambiguous)
		return e
	}
	var results []diff.Result
	for _, setOrder := range setOrders {
		setOrder()
		results = append(results, diff.Bypass(*installed, live.Ruleset, o))
	}
	e.addResults(results, &live.Ruleset, ambiguous)
	return e
}

// add adds the bypasses and the reasons of the effect on packets of another family.
func (e *Effect) add(other *Effect) {
	e.Bypasses = append(e.Bypasses, other.Bypasses...)
	e.More = e.More || other.More || len(e.Bypasses) > maxClasses
	e.Bypasses = e.Bypasses[:min(len(e.Bypasses), maxClasses)]
	for _, reason := range other.Unknown {
		e.addUnknown(reason)
	}
	e.Exhausted = e.Exhausted || other.Exhausted
}

// addResults adds the results, one for each possible order of the chains. If packets bypass the
// proxy only with some of the orders, it is unknown whether they do.
func (e *Effect) addResults(
	results []diff.Result, live *rules.Ruleset, ambiguous []compat.Ambiguity,
) {
	hasBypass := func(r diff.Result) bool { return len(r.Classes) > 0 }
	for _, r := range results {
		if r.Exhausted != "" {
			e.Exhausted = true
			e.addUnknown("the decision took " + r.Exhausted)
		}
		for _, u := range r.Undecided {
			e.addUnknown(undecidedText(live, u))
		}
	}
	switch {
	case !slices.ContainsFunc(results, hasBypass):
	case !slices.ContainsFunc(results, func(r diff.Result) bool { return !hasBypass(r) }):
		for _, c := range results[0].Classes {
			e.Bypasses = append(e.Bypasses, bypassOf(live, c))
		}
		e.More = results[0].More
	default:
		e.addAmbiguous(ambiguous)
	}
}

// addAmbiguous adds the ambiguities to the reasons.
func (e *Effect) addAmbiguous(ambiguous []compat.Ambiguity) {
	for _, a := range ambiguous {
		e.addUnknown(a.String())
	}
}

// addUnknown adds the reason, unless Unknown already contains it.
func (e *Effect) addUnknown(reason string) {
	e.LoopbackMissing = false
	if !slices.Contains(e.Unknown, reason) {
		e.Unknown = append(e.Unknown, reason)
	}
}

// undecidedText returns a sentence about packets whose outcome is unknown.
func undecidedText(rs *rules.Ruleset, u diff.Undecided) string {
	text := fmt.Sprintf("the outcome of packets such as %s depends on %s", u.Witness, u.Text)
	if u.Step.Chain != nil {
		text += fmt.Sprintf(", in a rule of %s: %s", OwnerOf(rs, &u.Step), u.Step)
	}
	return text
}

func bypassOf(rs *rules.Ruleset, c diff.Class) Bypass {
	live := c.Outcome.Right
	b := Bypass{
		Packets: packetsText(c.Packets), Witness: c.Witness.String(),
		Desired: c.Outcome.Left.Outcome.String(), Live: live.Outcome.String(), Reason: live.Reason,
	}
	if c.Witness.Status&rules.StatusDNAT != 0 {
		b.Desired = "redirected like the first packet of its connection"
	}
	if live.Decided != nil {
		b.Rule, b.Owner = live.Decided.String(), OwnerOf(rs, live.Decided)
	}
	return b
}

// packetsText describes the packets that satisfy the conditions.
func packetsText(conditions []diff.Condition) string {
	words := make([]string, len(conditions))
	for i, c := range conditions {
		words[i] = c.Field + " " + c.Values
	}
	return "packets with " + strings.Join(words, ", ")
}

// unknownEffects returns a sentence for each fact that makes the effect on packets unknown:
// functions and chains that live.Ruleset does not contain, rules at input (which [diff.Bypass] does
// not evaluate), expected connections, routes over lo, encapsulations, routes that choose the
// source address of the proxy's connections, and a loopback interface with a name other than lo.
func unknownEffects(live *compat.Live, desired *rules.Ruleset) []string {
	reasons := append([]string{}, live.UndecidedEffects()...) // not null in JSON
	for _, c := range live.UnmodeledChains {
		if strings.HasPrefix(c, "table arp ") {
			continue // a table of family arp sees no IP packets
		}
		reasons = append(reasons, "the effect of this chain on packets is unknown: "+c)
	}
	return append(reasons, slices.Concat(unknownAtInput(live), unknownRoutes(live, desired),
		unknownEncapsulation(live, desired), unknownSources(live, desired),
		unknownExpectations(live, desired))...)
}

// hasSluiceTable reports whether Sluice's table in nf_tables exists.
func hasSluiceTable(rs *rules.Ruleset) bool { return slices.ContainsFunc(rs.Tables, isSluiceTable) }

// jumpsOnlyToSluice reports whether an iptables-legacy chain is a Sluice chain, or contains only
// jumps to Sluice chains.
func jumpsOnlyToSluice(c *rules.Chain) bool {
	return compat.IsSluiceChain(c.Name) || !slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
		return !compat.JumpsToSluice(&r)
	})
}
