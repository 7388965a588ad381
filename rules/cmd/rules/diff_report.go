package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A diffReport is the result of diff.
type diffReport struct {
	left, right *diffSide
	diff.Result
	strict bool
	// notCompared names what was not compared, and why.
	notCompared []string
	// unstatedExplanation names a parameter that explains all differences and that the log of a
	// side does not contain. It is empty if there is no such parameter.
	unstatedExplanation string
}

// newDiffReport returns the report of a decision about two sides.
func newDiffReport(left, right *diffSide, result diff.Result, strict bool) diffReport {
	r := diffReport{left: left, right: right, Result: result, strict: strict}
	r.addRulesNotCompared()
	r.addPacketsNotCompared()
	return r
}

// addNotCompared adds a text to notCompared.
func (r *diffReport) addNotCompared(format string, args ...any) {
	r.notCompared = append(r.notCompared, fmt.Sprintf(format, args...))
}

// addRulesNotCompared adds the families, rules and routes of each side that were not compared.
func (r *diffReport) addRulesNotCompared() {
	sides := []*diffSide{r.left, r.right}
	for _, side := range sides {
		if side.family != rules.Inet {
			other := map[rules.Family]string{rules.IPv4: "IPv6", rules.IPv6: "IPv4"}[side.family]
			r.addNotCompared("%s: %s does not contain it", other, side.name)
		}
	}
	for _, side := range sides {
		if !side.RoutingKnown {
			r.addNotCompared("policy routes and loopback addresses: %s does not contain them",
				side.name)
		}
		if len(side.unmodeledRoutes) > 0 {
			r.addNotCompared("where these policy rules of %s route packets: %s", side.name,
				strings.Join(side.unmodeledRoutes, ", "))
		}
	}
	for i, chains := range [][]rules.ChainRef{r.OtherHooks.Left, r.OtherHooks.Right} {
		postrouting, others := splitPostrouting(chains)
		if len(postrouting) > 0 {
			r.addNotCompared("what %s does at postrouting to packets that it forwards: %s",
				sides[i].name, strings.Join(chainTexts(postrouting), ", "))
		}
		if len(others) > 0 {
			r.addNotCompared("what %s does at hooks other than prerouting, output and "+
				"postrouting: %s", sides[i].name, strings.Join(chainTexts(others), ", "))
		}
	}
}

// addPacketsNotCompared adds the packets that were not compared, and the chains that packets
// traverse before and after the compared hooks.
func (r *diffReport) addPacketsNotCompared() {
	if r.UntrackedUndecided {
		r.addNotCompared("packets that enter untracked (copies, and packets of a filter of tc) " +
			"and get a conntrack zone")
	}
	for _, side := range []*diffSide{r.left, r.right} {
		if side.meetsFragments() {
			r.addNotCompared("fragments of packets: rules of %s may meet them "+
				"before the kernel reassembles them", side.name)
		}
		for _, text := range side.unmodeledChains {
			r.addNotCompared("what %s does before and after these hooks: %s", side.name, text)
		}
	}
	for _, f := range []struct {
		family, other rules.Family
		name          string
	}{{rules.IPv4, rules.IPv6, "IPv4"}, {rules.IPv6, rules.IPv4, "IPv6"}} {
		if r.left.family != f.other && r.right.family != f.other &&
			diff.NATDiffers(&r.left.Ruleset, &r.right.Ruleset, f.family) {
			r.addNotCompared("%s packets of connections that were translated earlier: only one "+
				"side has chains of NAT, without which the kernel does not translate them", f.name)
		}
	}
	if r.left.family != rules.IPv4 && r.right.family != rules.IPv4 &&
		diff.OmitsAuthenticationHeaders(&r.left.Ruleset, &r.right.Ruleset) {
		r.addNotCompared("IPv6 packets with an authentication header: iptables-legacy compares " +
			"the protocol after it, nftables and iptables-nft do not")
	}
}

// splitPostrouting divides chains into the chains at postrouting and the other chains.
func splitPostrouting(chains []rules.ChainRef) (postrouting, others []rules.ChainRef) {
	for _, c := range chains {
		if c.Chain.Base.Hook == rules.Postrouting {
			postrouting = append(postrouting, c)
		} else {
			others = append(others, c)
		}
	}
	return postrouting, others
}

// explainByUnstatedParameter sets unstatedExplanation if a parameter that a log does not contain
// explains all differences.
func (r *diffReport) explainByUnstatedParameter(families []rules.Family, budget diff.Budget) {
	if r.verdict() != diff.Different {
		return
	}
	for _, pair := range [][2]*diffSide{{r.left, r.right}, {r.right, r.left}} {
		compiled, log := pair[0], pair[1]
		if compiled.Redirect == nil || !slices.Contains(log.unstated, unstatedLoopback) {
			continue
		}
		for _, prefix := range []string{"127.0.0.1/32", "127.0.0.0/8"} {
			tried := *compiled.Redirect
			given := tried.LoopbackCIDR
			if tried.LoopbackCIDR = netip.MustParsePrefix(prefix); tried.LoopbackCIDR == given {
				continue
			}
			side := diff.Side{
				Ruleset: rules.MustCompile(tried), RoutingKnown: true, Redirect: &tried,
			}
			result := diff.Decide(side, log.Side, diff.Options{Families: families, Budget: budget})
			if r.verdictOf(&result) == diff.Equivalent {
				r.unstatedExplanation = fmt.Sprintf(
					"%s does not state %s: with %s instead of %s there is no difference", log.name,
					unstatedLoopback, prefix, given)
				return
			}
		}
	}
}

// unstatedLoopback is the parameter that no log of istio-init contains.
const unstatedLoopback = "HOST_IPV4_LOOPBACK_CIDR"

// verdict returns the answer. The answer is "cannot decide" if the rules of a side are a guess, or
// if there is no difference but a fact about a whole side is unknown.
func (r diffReport) verdict() diff.Verdict {
	verdict := r.verdictOf(&r.Result)
	if r.left.isGuess || r.right.isGuess || verdict == diff.Equivalent && r.unknownCount() > 0 {
		return diff.Undecidable
	}
	return verdict
}

// verdictOf returns the verdict of a result. Known deviations count as differences with --strict.
func (r diffReport) verdictOf(result *diff.Result) diff.Verdict {
	if r.strict {
		return result.StrictVerdict()
	}
	return result.Verdict()
}

// unknownCount returns the number of unknown facts about whole sides.
func (r diffReport) unknownCount() int { return len(r.left.undecided) + len(r.right.undecided) }

// countClasses returns the number of classes that count as differences, and the number of classes
// that do not, because they are known deviations.
func (r diffReport) countClasses() (differences, known int) {
	for _, c := range r.Classes {
		if len(c.Deviations) > 0 && !r.strict {
			known++
		} else {
			differences++
		}
	}
	return differences, known
}

// verdictColor returns the color of a verdict.
func verdictColor(v diff.Verdict) color.Code {
	return cmp.Or(map[diff.Verdict]color.Code{
		diff.Equivalent: color.Green, diff.Different: color.Red,
	}[v], color.Yellow)
}

// diffText formats the report for people, the answer first.
func (s *system) diffText(r diffReport) string {
	b := new(strings.Builder)
	verdict := r.verdict()
	fmt.Fprintf(b, "%s%s\n", s.paint(verdictColor(verdict), string(verdict)), r.summary())
	fmt.Fprintf(b, "  left   %s\n  right  %s\n", rules.Printable(r.left.title()),
		rules.Printable(r.right.title()))
	s.writeClasses(b, r)
	for _, u := range r.Undecided {
		s.writeUndecided(b, r, u)
	}
	if r.MoreUndecided {
		fmt.Fprintf(b, "\n%s\n",
			s.paint(color.Yellow,
				"cannot decide: the answer depends on more unknown conditions than these"))
	}
	if r.Exhausted != "" {
		fmt.Fprintf(b, "\n%s\n", s.paint(color.Yellow, "cannot decide: "+r.Exhausted+
			"; --max-time and --max-memory allow more"))
	}
	if r.unstatedExplanation != "" {
		fmt.Fprintf(b, "\n%s\n", r.unstatedExplanation)
	}
	for _, side := range []*diffSide{r.left, r.right} {
		for _, property := range side.undecided {
			fmt.Fprintf(b, "\n%s\n", s.paint(color.Yellow,
				rules.Printable("cannot decide: "+side.name+": "+property)))
		}
	}
	if len(r.Routing) > 0 {
		fmt.Fprintf(b, "\n%s", s.differencesText(r.Routing))
	}
	r.writeRemarks(b)
	return b.String()
}

// summary returns the numbers of differences and of unknown conditions as text.
func (r diffReport) summary() string {
	differences, known := r.countClasses()
	var parts []string
	if differences > 0 {
		parts = append(parts, countOf(differences, "class", "classes")+" of packets")
	}
	if n := len(r.Routing); n > 0 {
		parts = append(parts, count(n, "difference")+" of routing")
	}
	if n := len(r.Undecided); n > 0 {
		conditions := count(n, "unknown condition")
		if r.MoreUndecided {
			conditions = "more than " + conditions
		}
		parts = append(parts, conditions)
	}
	if r.Exhausted != "" {
		parts = append(parts, r.Exhausted)
	}
	if n := r.unknownCount(); n > 0 {
		parts = append(parts,
			countOf(n, "unknown property of a side", "unknown properties of a side"))
	}
	text := "every packet is treated alike"
	if len(parts) > 0 {
		text = strings.Join(parts, ", ")
	}
	if known > 0 {
		text += ", but for known deviations"
	}
	return ": " + text
}

// title returns the name of the side and its notes.
func (side *diffSide) title() string {
	return strings.Join(append([]string{side.name}, side.notes...), "; ")
}

// writeClasses writes the classes of packets. Among the classes with the same known deviations it
// writes only the simplest class, unless known deviations count as differences.
func (s *system) writeClasses(b *strings.Builder, r diffReport) {
	known := map[string]int{}
	for _, c := range r.Classes {
		known[deviationsText(c.Deviations)]++
	}
	written := map[string]bool{}
	for i := range r.Classes {
		c := &r.Classes[i]
		deviations := deviationsText(c.Deviations)
		if deviations != "" && !r.strict {
			if written[deviations] {
				continue
			}
			written[deviations] = true
			fmt.Fprintf(b, "\n%s\n",
				s.paint(color.Bold,
					fmt.Sprintf("known deviation %s: %s of packets, the simplest is",
						deviations, countOf(known[deviations], "class", "classes"))))
			deviations = "" // the heading names them
		}
		fmt.Fprintln(b)
		s.writeClass(b, r, c, deviations)
	}
	if !r.More {
		return
	}
	if differences, _ := r.countClasses(); differences > 0 {
		fmt.Fprintf(b, "\nand more classes of packets differ\n")
	} else {
		fmt.Fprintf(b, "\nand more classes of packets differ by known deviations\n")
	}
}

// writeClass writes one class of packets. deviations are the known deviations that its title names.
func (s *system) writeClass(b *strings.Builder, r diffReport, c *diff.Class, deviations string) {
	title := conditionsText(c.Packets)
	if deviations != "" {
		title += " (known deviation " + deviations + ")"
	}
	fmt.Fprintln(b, s.paint(color.Bold, rules.Printable(title)))
	fmt.Fprintf(b, "  witness  %s\n", c.Witness)
	fmt.Fprintf(b, "  left     %s\n           %s\n",
		s.paint(color.Red, rules.Printable(c.Outcome.Left.Outcome.String())),
		rules.Printable(r.left.decidedBy(c.Outcome.Left)))
	fmt.Fprintf(b, "  right    %s\n           %s\n",
		s.paint(color.Green, rules.Printable(c.Outcome.Right.Outcome.String())),
		rules.Printable(r.right.decidedBy(c.Outcome.Right)))
	if c.Outcome.Left.IfNoneTrue != nil {
		fmt.Fprintf(b, "  note     the outcomes are undecided, but differ for every result of what is"+
			" unknown\n           if no unknown condition is true: left %s; right %s\n",
			rules.Printable(c.Outcome.Left.IfNoneTrue.String()),
			rules.Printable(c.Outcome.Right.IfNoneTrue.String()))
	}
}

// writeUndecided writes a reason why the outcome of packets is unknown, with an example.
func (s *system) writeUndecided(b *strings.Builder, r diffReport, u diff.Undecided) {
	name, side := "left", r.left
	if u.Right {
		name, side = "right", r.right
	}
	fmt.Fprintf(b, "\n%s\n", s.paint(color.Yellow,
		rules.Printable("cannot decide: the answer depends on "+u.Text)))
	fmt.Fprintf(b, "  %-7s  %s\n  witness  %s\n", name, rules.Printable(side.locate(&u.Step)),
		u.Witness)
}

// writeRemarks writes facts that do not affect the result.
func (r diffReport) writeRemarks(b *strings.Builder) {
	var lines []string
	for _, n := range r.notCompared {
		lines = append(lines, rules.Printable("not compared: "+n))
	}
	for _, side := range []struct {
		name   string
		chains []rules.ChainRef
	}{{"left", r.Unreachable.Left}, {"right", r.Unreachable.Right}} {
		if len(side.chains) > 0 {
			lines = append(lines, "unreachable on the "+side.name+": "+
				strings.Join(chainTexts(side.chains), ", "))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s\n", strings.Join(lines, "\n"))
	}
}

// chainTexts returns the names of the chains.
func chainTexts(chains []rules.ChainRef) []string {
	return convertEach(chains, func(c *rules.ChainRef) string { return chainName(*c) })
}

// deviationsText returns the ids of deviations as a phrase.
func deviationsText(ids []rules.DeviationID) string {
	return strings.Join(convertEach(ids, func(id *rules.DeviationID) string {
		return string(*id)
	}), " with ")
}

// conditionsText returns the conditions as a phrase: "in IPv4 tcp: destination port 443; the route
// to the source uses the input interface: yes".
func conditionsText(conditions []diff.Condition) string {
	var head, rest []string
	for _, c := range conditions {
		switch {
		case c.Field == "hook" && c.Values == rules.Output.String():
			head = append(head, "out")
		case c.Field == "hook":
			head = append(head, "in")
		case c.Field == "family", c.Field == "protocol":
			head = append(head, c.Values)
		case c.Values == "yes", c.Values == "no": // the field is a statement
			rest = append(rest, c.Field+": "+c.Values)
		default:
			rest = append(rest, c.Field+" "+c.Values)
		}
	}
	if len(rest) == 0 {
		return strings.Join(head, " ") + ": every packet"
	}
	return strings.Join(head, " ") + ": " + strings.Join(rest, "; ")
}
