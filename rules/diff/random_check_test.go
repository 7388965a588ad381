package diff_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// assume returns the ruleset with each unknown condition replaced by a match that always succeeds
// if the bit of fulfilled for the condition is 1, and by a match that always fails otherwise. The
// number of the bit is the last character of the condition's text.
func assume(rs rules.Ruleset, fulfilled int) rules.Ruleset {
	always := rules.MatchFamily{}
	never := rules.MatchProtocol{Protocols: []rules.Protocol{0}}
	assumed := rules.Ruleset{Routing: rs.Routing}
	for _, t := range rs.Tables {
		t.Chains = slices.Clone(t.Chains)
		for i := range t.Chains {
			c := &t.Chains[i]
			c.Rules = slices.Clone(c.Rules)
			for j := range c.Rules {
				c.Rules[j].Matches = slices.Clone(c.Rules[j].Matches)
				for k, m := range c.Rules[j].Matches {
					if u, ok := m.(rules.Unknown); ok {
						c.Rules[j].Matches[k] = never
						if fulfilled>>(u.Text[len(u.Text)-1]-'0')&1 == 1 {
							c.Rules[j].Matches[k] = always
						}
					}
				}
			}
		}
		assumed.Tables = append(assumed.Tables, t)
	}
	return assumed
}

// isDroppedByRedirection reports whether a redirection drops the packet because of its destination.
// Decide compares such packets only if no other packets differ.
func isDroppedByRedirection(p rules.Packet) bool {
	to := p.Destination.Addr()
	return p.Hook == rules.Prerouting && (netip.MustParsePrefix("::/96").Contains(to) ||
		netip.MustParsePrefix("fec0::/10").Contains(to))
}

// mayBeDroppedByNAT reports whether the packet is an ICMP redirect and only one of the rulesets has
// a NAT chain. NAT drops the ICMP redirects of translated connections. Decide assumes that both
// sides have NAT (see diff.NATDiffers), but Explain considers one ruleset.
func mayBeDroppedByNAT(p rules.Packet, left, right *rules.Ruleset) bool {
	const redirect = 5 // the ICMP type
	return p.Protocol == rules.ICMP && p.ICMPType == redirect &&
		diff.NATDiffers(left, right, rules.IPv4)
}

// withoutNoopTranslations returns the outcome without translations that do not change the packet: a
// redirection at output of a packet to 127.0.0.1 or ::1 becomes a translation of the port, and a
// translation to the same port is omitted.
func withoutNoopTranslations(p rules.Packet, o rules.Outcome) rules.Outcome {
	to := p.Destination.Addr()
	if p.Hook == rules.Output && (to == netip.AddrFrom4([4]byte{127, 0, 0, 1}) ||
		to == netip.IPv6Loopback()) && o.Redirect != 0 {
		o.DNATPort, o.DNATPortLast, o.Redirect, o.RedirectLast = o.Redirect, o.RedirectLast, 0, 0
	}
	if !o.DNATAddr.IsValid() && o.DNATPort == p.Destination.Port() && o.DNATPortLast == 0 {
		o.DNATPort = 0
	}
	return o
}

// isOfKernel reports whether the packet may be a reset of a reject rule or has a socket of the
// kernel.
func isOfKernel(p rules.Packet) bool {
	return p.KernelSocket || p.Hook == rules.Output && p.Protocol == rules.TCP &&
		p.State == rules.Related && p.Flags&rules.RST != 0
}

// isImpossibleReset reports whether the packet is a reset with the connection of the packet that it
// answers, although no rule of the rulesets sends resets.
func isImpossibleReset(p rules.Packet, rulesets ...*rules.Ruleset) bool {
	return isOfKernel(p) && !p.KernelSocket && p.Reply &&
		!slices.ContainsFunc(rulesets, sendsResets)
}

// sendsResets reports whether a rule may answer a packet with a TCP reset.
func sendsResets(rs *rules.Ruleset) bool {
	return rs.HasAction(func(a rules.Action) bool {
		reject, rejects := a.(rules.Reject)
		u, unknown := a.(rules.Unknown)
		return rejects && reject.With == "tcp reset" || unknown && u.Effect == rules.AnyEffect
	})
}

// entersUntracked reports whether the packet is untracked for another reason than its ICMPv6 type:
// conntrack ignores neighbor discovery and multicast listener discovery.
func entersUntracked(p rules.Packet) bool {
	isDiscovery := p.Protocol == rules.ICMPv6 && (p.ICMPType >= 130 && p.ICMPType <= 136 ||
		p.ICMPType == 143)
	return p.State == rules.Untracked && !isDiscovery
}

// hasInexpressibleWitness reports whether a class has conditions that a packet cannot state: only
// some kinds of socket matches find a transparent socket, or the host routes the destination to lo.
func hasInexpressibleWitness(c diff.Class) bool {
	found := map[string]bool{}
	for _, condition := range c.Packets {
		if strings.HasPrefix(condition.Field, "the host has a transparent socket for the packet") {
			found[condition.Values] = true
		}
	}
	return len(found) > 1 || slices.Contains(c.Packets, diff.Condition{
		Field: "the host routes the destination to lo, whatever the mark", Values: "yes",
	})
}

// isUndecided reports whether the outcome depends on unknown conditions.
func isUndecided(o rules.Outcome) bool { return o.Undecided != "" || o.UnknownMarks != "" }

// checkUnknown verifies that the result for a packet holds for all values of the unknown
// conditions.
func checkUnknown(t rapid.TB, p rules.Packet, result diff.Result, left, right *rules.Ruleset) {
	t.Helper()
	if !diff.Possible(p) || isDroppedByRedirection(p) || isImpossibleReset(p, left, right) ||
		result.More || result.Exhausted != "" {
		return
	}
	in := slices.ContainsFunc(result.Classes, func(c diff.Class) bool { return c.Contains(p) })
	for fulfilled := range 1 << 3 {
		l, r := assume(*left, fulfilled), assume(*right, fulfilled)
		a, b := diff.Explain(&l, p).Outcome, diff.Explain(&r, p).Outcome
		switch {
		case isUndecided(a) || isUndecided(b):
		case in && a.Same(b):
			t.Fatalf("%s is in a class, but with conditions %b both outcomes are %s", p, fulfilled, a)
		case entersUntracked(p) && (len(result.Classes) > 0 || result.UntrackedUndecided):
		case (isOfKernel(p) || p.MissingListeners != "") && len(result.Classes) > 0:
		case len(result.Undecided) == 0 && !in && !a.Same(b):
			t.Fatalf("%s is in no class and nothing is undecided, but with conditions %b the outcomes are %s and %s\n%s\n%s",
				p, fulfilled, a, b, left, right)
		}
	}
}

// near returns p with one or two changes of random fields.
func (g generator) near(p rules.Packet) rules.Packet {
	for range g.number("parts", 1) + 1 {
		other := g.packet()
		switch g.number("part", 9) {
		case 0:
			p.Source = netip.AddrPortFrom(other.Source.Addr(), p.Source.Port())
		case 1:
			p.Destination = netip.AddrPortFrom(other.Destination.Addr(), p.Destination.Port())
		case 2:
			p.Source = netip.AddrPortFrom(p.Source.Addr(), other.Source.Port())
		case 3:
			p.Destination = netip.AddrPortFrom(p.Destination.Addr(), other.Destination.Port())
		case 4:
			p.Mark = other.Mark
		case 5:
			p.ConntrackMark = other.ConntrackMark
		case 6:
			p.State, p.NoListener = other.State, other.NoListener
			p.MissingListeners = other.MissingListeners
		case 7:
			p.Flags = other.Flags
		case 8:
			p.Owner = other.Owner
			p.TransparentSocket = other.TransparentSocket
			p.TransparentSender = p.Hook == rules.Output && other.TransparentSender
		case 9:
			p.Mark ^= 1 << g.number("bit", 31)
		}
	}
	return p
}

// change returns the ruleset with a rule inserted or deleted, the same ruleset, or a new one.
func (g generator) change(rs rules.Ruleset) rules.Ruleset {
	changed := rs
	changed.Tables = slices.Clone(rs.Tables)
	t := &changed.Tables[g.number("table", len(rs.Tables)-1)]
	t.Chains = slices.Clone(t.Chains)
	c := &t.Chains[g.number("chain", len(t.Chains)-1)]
	c.Rules = slices.Clone(c.Rules)
	other := g.rules(2)
	switch at := g.number("at", len(c.Rules)); {
	case len(other) > 0 && g.yes("insert"):
		c.Rules = slices.Insert(c.Rules, at, other[0])
	case at < len(c.Rules):
		c.Rules = slices.Delete(c.Rules, at, at+1)
	case g.number("another", 5) == 0:
		return g.ruleset()
	}
	return changed
}

// TestDecisionsAgreeWithExplanations verifies that, for random rulesets, Decide agrees with Explain
// about every tested packet.
func TestDecisionsAgreeWithExplanations(t *testing.T) {
	for name, newGenerator := range map[string]func(*rapid.T) generator{"shrinkable": shrinkable, "uniform": uniform} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := newGenerator(t)
				left := g.ruleset()
				right := pick(g, "right", g.change,
					func(rules.Ruleset) rules.Ruleset { return g.ruleset() },
					func(rules.Ruleset) rules.Ruleset { return rules.Ruleset{} })
				checkDecision(t, g, left, right(left))
			})
		})
	}
}

// checkDecision verifies the result of Decide for the witnesses, for packets similar to the
// witnesses, and for random packets.
func checkDecision(t rapid.TB, g generator, left, right rules.Ruleset) {
	result := diff.Decide(withRouting(left), withRouting(right), diff.Options{
		MaxClasses: 20, Budget: diff.Budget{Memory: 32 << 20},
	})
	if result.Exhausted != "" {
		return
	}
	for _, c := range result.Classes {
		checkClass(t, c, &left, &right)
		for range 3 {
			checkPacket(t, g.near(c.Witness), result, &left, &right)
		}
	}
	for range 30 {
		p := g.packet()
		checkPacket(t, p, result, &left, &right)
		checkUnknown(t, p, result, &left, &right)
	}
}

// withRouting returns a side with known routing.
func withRouting(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs, RoutingKnown: true} }

// checkClass verifies that the witness of a class, as it is printed, is possible, belongs to the
// class, and has the reported outcomes.
func checkClass(t rapid.TB, c diff.Class, left, right *rules.Ruleset) {
	t.Helper()
	printed, err := rules.ParsePacket(c.Witness.String())
	if err != nil {
		t.Fatal(err)
	}
	l, r := diff.Explain(left, printed).Outcome, diff.Explain(right, printed).Outcome
	reported := c.Outcome
	if reported.Left.IfNoneTrue != nil &&
		reported.Left.IfNoneTrue.Same(*reported.Right.IfNoneTrue) {
		t.Fatalf("the outcomes for the witness %s of %v are undecided, and both %s otherwise\n%s\n%s",
			c.Witness, c.Packets, reported.Left.IfNoneTrue, left, right)
	}
	switch {
	case l != diff.Explain(left, c.Witness).Outcome || r != diff.Explain(right, c.Witness).Outcome:
		t.Fatalf("the text of the witness %+v lacks a property: %s", c.Witness, c.Witness)
	case isUndecided(l) || isUndecided(r):
		// checkUnknown verifies undecided packets.
	case mayBeDroppedByNAT(c.Witness, left, right) || hasInexpressibleWitness(c):
	case l.Same(r):
		t.Fatalf("both outcomes of the witness %s of %v are %s, want different outcomes\n%s\n%s",
			c.Witness, c.Packets, l, left, right)
	case l != c.Outcome.Left.Outcome || r != c.Outcome.Right.Outcome:
		t.Fatalf("the witness %s has the outcomes %s and %s, but its class says %s and %s",
			c.Witness, l, r, c.Outcome.Left.Outcome, c.Outcome.Right.Outcome)
	case !diff.Possible(c.Witness):
		t.Fatalf("the witness %s is not possible", c.Witness)
	case !c.Contains(c.Witness):
		t.Fatalf("the witness %s is not in its class %v", c.Witness, c.Packets)
	}
}

// checkPacket verifies that a packet whose outcomes differ is in one class, and that a packet with
// equal outcomes is in none.
func checkPacket(t rapid.TB, p rules.Packet, result diff.Result, left, right *rules.Ruleset) {
	t.Helper()
	if !diff.Possible(p) || isDroppedByRedirection(p) || isImpossibleReset(p, left, right) ||
		mayBeDroppedByNAT(p, left, right) {
		return
	}
	l, r := diff.Explain(left, p).Outcome, diff.Explain(right, p).Outcome
	if isUndecided(l) || isUndecided(r) {
		return // see checkUnknown
	}
	in := 0
	for _, c := range result.Classes {
		if c.Contains(p) {
			in++
		}
	}
	if !p.InAddress.IsValid() {
		in = min(in, 1) // classes may differ only in the interface's address
	}
	if withoutNoopTranslations(p, l).Same(withoutNoopTranslations(p, r)) && !l.Same(r) {
		return // one side translates the packet to its own destination
	}
	othersDiffer := len(result.Classes) > 0 || len(result.Undecided) > 0 ||
		result.UntrackedUndecided
	isRare := entersUntracked(p) || isOfKernel(p) || p.MissingListeners != ""
	if in == 0 && isRare && othersDiffer {
		return // not compared if other packets differ
	}
	if want := map[bool]int{false: 1, true: 0}[l.Same(r)]; in != want && (want == 0 ||
		!result.More) {
		t.Fatalf("%s is in %d classes, want %d, exhausted %q\nleft  %s\nright %s\n%s\n%s\n%v\n%v",
			p, in, want, result.Exhausted, l, r, left, right, result.Undecided, classes(result))
	}
}
