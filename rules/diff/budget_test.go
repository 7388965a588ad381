package diff

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// outputFilter returns a ruleset with one filter chain at output.
func outputFilter(list ...rules.Rule) rules.Ruleset {
	base := &rules.Base{Type: rules.Filter, Hook: rules.Output}
	return rules.Ruleset{Tables: []rules.Table{{
		Family: rules.IPv4, Name: "t",
		Chains: []rules.Chain{{Name: "output", Base: base, Rules: list}},
	}}}
}

// withRouting returns a side with known routing.
func withRouting(rs rules.Ruleset) Side { return Side{Ruleset: rs, RoutingKnown: true} }

// dropRule returns a rule that drops the matching packets.
func dropRule(matches ...rules.Match) rules.Rule {
	return rules.Rule{Matches: matches, Actions: []rules.Action{rules.Drop}}
}

// interfaceNamed returns a match of the output interface.
func interfaceNamed(name string) rules.Match {
	return rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: name}}}
}

// A shared budget is charged from the time passed to From. The reported limit is the full budget,
// not what was left of it.
func TestBudgetStartsWithTheWork(t *testing.T) {
	spent := Budget{Time: time.Hour}.From(time.Now().Add(-2 * time.Hour))
	limit := runLimited(func() { newMeter(spent).charge(stepsPerReading) })
	if want := "more than 1h0m0s of work"; limit != want {
		t.Errorf("work that began two hours ago: limit %q, want %q", limit, want)
	}
	if limit := runLimited(func() {
		newMeter(Budget{}.From(time.Now())).charge(stepsPerReading)
	}); limit != "" {
		t.Errorf("work that begins now, default budget: limit %q, want none", limit)
	}
}

// A pause of the process counts as maxPerReading, however long it is. A shorter interval counts in
// full.
func TestPauseOfTheProcessCountsAsMaxPerReading(t *testing.T) {
	m := newMeter(Budget{Time: 10 * maxPerReading})
	clock := m.lastReading
	m.now = func() time.Time {
		clock = clock.Add(time.Hour)
		return clock
	}
	for i := range 11 {
		limit := runLimited(func() { m.charge(stepsPerReading) })
		if last := i == 10; last != (limit != "") {
			t.Fatalf("after pause %d: limit %q, want a limit only after pause 11", i+1, limit)
		}
	}
	m = newMeter(Budget{Time: time.Hour})
	m.now = func() time.Time {
		clock = clock.Add(time.Microsecond)
		return clock
	}
	m.lastReading = clock
	m.charge(stepsPerReading)
	if spent := m.budget.spent.Load(); spent != int64(time.Microsecond) {
		t.Errorf("a microsecond counts as %d ns, want 1000", spent)
	}
}

// Requests with the same budget share its time.
func TestRequestsShareABudget(t *testing.T) {
	b := Budget{Time: 3*maxPerReading + maxPerReading/2}.From(time.Time{})
	var limits []string
	for range 4 {
		m := newMeter(b)
		m.now = func() time.Time { return m.lastReading.Add(time.Hour) }
		limits = append(limits, runLimited(func() { m.charge(stepsPerReading) }))
	}
	if strings.Join(limits[:3], "") != "" || limits[3] == "" {
		t.Errorf("limits of four requests: %q, want a limit only for the fourth", limits)
	}
}

// The meter counts memory in use, and not memory that was released.
func TestMeterCountsMemoryInUse(t *testing.T) {
	m := newMeter(Budget{Memory: 100 << 20})
	limit := runLimited(func() {
		for range 1000 {
			m.alloc(40 << 20)
			m.release(40 << 20)
		}
		m.alloc(40 << 20)
		m.alloc(40 << 20)
	})
	if want := "more than half of 100 MB of memory"; limit != want || m.memory != 80<<20 {
		t.Errorf("limit %q with %d MB in use, want %q with 80 MB", limit, m.memory>>20, want)
	}
}

// The meter counts the tables of diagrams.
func TestMeterCountsTablesOfDiagrams(t *testing.T) {
	m := newMeter(Budget{Memory: 1 << 30})
	d := newDiagrams(initialSize, m)
	for i := range uint32(100_000) {
		d.node(i, none, all)
	}
	d.newRound()
	want := int64(cap(d.nodes)*nodeSize + len(d.uniqueTable)*setSize +
		len(d.results)*resultSize + len(d.projected)*projectionSize)
	if m.memory < want*99/100 || m.memory > want*101/100 {
		t.Errorf("the meter counts %d bytes, want %d within one percent", m.memory, want)
	}
}

func TestExplainReportsAnExhaustedBudget(t *testing.T) {
	rs := outputFilter(dropRule(interfaceNamed("eth0")))
	p, err := rules.ParsePacket("out tcp 10.0.0.1:1 > 10.0.0.2:2")
	if err != nil {
		t.Fatal(err)
	}
	trace := ExplainWithin(&rs, p, Budget{Memory: 1})
	if want := "more than half of 0 MB of memory"; trace.Exhausted != want ||
		trace.Outcome.Undecided != want || len(trace.Passes) != 1 {
		t.Errorf("trace %+v, want the limit %q and one pass", trace, want)
	}
}

// An interface name separates interface classes not only in an ordinary match, but also in an
// alternative of a tuple and in a Require action.
func TestInterfaceNamesInEveryPositionSeparateClasses(t *testing.T) {
	port := rules.MatchPort{
		Side: rules.Destination, Ports: []rules.PortRange{rules.Single[uint16](80)},
	}
	tuple := func(name string) rules.Match {
		return rules.MatchTuple{Alternatives: [][]rules.Match{
			{interfaceNamed(name), port}, {interfaceNamed("other"), port},
		}}
	}
	for name, rule := range map[string]rules.Rule{
		"in an alternative": dropRule(tuple("net7")),
		"in a Require action": {Actions: []rules.Action{
			rules.Require{Match: interfaceNamed("net7")}, rules.Drop,
		}},
		"in an alternative in a Require action": {Actions: []rules.Action{
			rules.Require{Match: tuple("net7")}, rules.Drop,
		}},
		"as an ordinary match": dropRule(interfaceNamed("net7")),
	} {
		result := Decide(withRouting(outputFilter(rule)), withRouting(outputFilter()), Options{})
		if len(result.Classes) == 0 ||
			!strings.HasPrefix(result.Classes[0].Witness.OutInterface, "net7") &&
				result.Classes[0].Witness.OutInterface != "other" {
			t.Errorf("%s: %s, classes %v, want a witness with an interface of the rule", name,
				result.StrictVerdict(), result.Classes)
		}
	}
}

func TestTooManyInterfaceNamesExhaustTheBudget(t *testing.T) {
	var names []rules.InterfaceName
	for i := range maxClasses {
		names = append(names, rules.InterfaceName{Name: fmt.Sprintf("i%x", i)})
	}
	many := outputFilter(dropRule(rules.MatchInterface{Out: true, Names: names}))
	result := Decide(withRouting(many), withRouting(outputFilter()), Options{})
	if want := "more than 65536 distinct interface names and prefixes"; result.Exhausted != want ||
		len(result.Classes) != 0 {
		t.Errorf("limit %q and %d classes, want %q and none", result.Exhausted,
			len(result.Classes), want)
	}
}

// The class of the remaining interfaces with a prefix has an example even if rules contain all
// short names with this prefix.
func TestRemainderOfAnInterfacePrefixHasAnExample(t *testing.T) {
	names := []rules.InterfaceName{{Name: "a", Prefix: true}, {Name: "a"}}
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_." {
		names = append(names, rules.InterfaceName{Name: "a" + string(c)},
			rules.InterfaceName{Name: "a0" + string(c), Prefix: c%2 == 0})
	}
	d := newInterfaceClasses(names, newMeter(Budget{}))
	i := d.classOf("an unlikely name")
	if i < 0 || d.classes[i].name != names[0] || !strings.HasPrefix(d.classes[i].example, "a") {
		t.Fatalf("class %d of %v, want the class of %s with an example", i, d.classes, names[0])
	}
	for _, n := range names[1:] {
		if n.Contains(d.classes[i].example) {
			t.Errorf("the example of the remaining interfaces is %s, which %s matches",
				d.classes[i].example, n)
		}
	}
}

// Only the first MaxUndecided undecided conditions are listed.
func TestUndecidedConditionsAreLimited(t *testing.T) {
	unknown := func(n int) rules.Ruleset {
		var list []rules.Rule
		for i := range n {
			list = append(list, dropRule(rules.Unknown{
				Text: fmt.Sprintf("unknown %d", i), Effect: rules.Reads, Data: rules.NoData,
			}))
		}
		return outputFilter(list...)
	}
	for n, more := range map[int]bool{MaxUndecided: false, MaxUndecided + 1: true} {
		result := Decide(withRouting(unknown(n)), withRouting(outputFilter()),
			Options{Families: []rules.Family{rules.IPv4}})
		if len(result.Undecided) != MaxUndecided || result.MoreUndecided != more {
			t.Errorf("%d undecided conditions: %d listed, more %t, want %d, more %t", n,
				len(result.Undecided), result.MoreUndecided, MaxUndecided, more)
		}
	}
}

// A chain with a random or rate-limiting match can be called maxCalls times for a packet.
func TestCallsOfAChainWithARandomMatchAreLimited(t *testing.T) {
	p, err := rules.ParsePacket("out tcp 10.0.0.1:1 > 10.0.0.2:2")
	if err != nil {
		t.Fatal(err)
	}
	rateLimit := rules.Unknown{Text: "limit rate 1/second", Effect: rules.ReadsVarying}
	jump := rules.Rule{Actions: []rules.Action{rules.Jump{Chain: "c"}}}
	for calls, undecided := range map[int]string{
		maxCalls:     "",
		maxCalls + 1: "jump c: more than 8 calls of a chain with a random or rate-limiting match",
	} {
		rs := outputFilter(slices.Repeat([]rules.Rule{jump}, calls)...)
		rs.Tables[0].Chains = append(rs.Tables[0].Chains, rules.Chain{
			Name: "c", Rules: []rules.Rule{dropRule(rateLimit)},
		})
		if got := Explain(&rs, p).Outcome.Undecided; got != undecided {
			t.Errorf("%d calls: undecided because of %q, want %q", calls, got, undecided)
		}
	}
}

// A rule with a long list counts as several steps.
func TestLongRulesCountAsSeveralSteps(t *testing.T) {
	var ranges []netipx.IPRange
	for i := range 64 * 100 {
		a := netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0})
		ranges = append(ranges, netipx.IPRangeFrom(a, a))
	}
	long := rules.Rule{
		Matches: []rules.Match{rules.MatchAddr{Side: rules.Destination, Not: true, Ranges: ranges}},
		Actions: []rules.Action{rules.SetMark{Value: 1, Mask: 1}},
	}
	list := make([]rules.Rule, 200)
	for i := range list {
		list[i] = long
	}
	rs := outputFilter(list...)
	p, err := rules.ParsePacket("out tcp 10.0.0.1:1 > 10.0.0.2:2")
	if err != nil {
		t.Fatal(err)
	}
	pass := Explain(&rs, p).Passes[0]
	// Each rule counts as one step, and as 100 more for its 64*100 ranges.
	if want := MaxSteps/101 + 1; len(pass.Steps) != want || !pass.Truncated {
		t.Errorf("%d steps, truncated %t, want %d, truncated true", len(pass.Steps), pass.Truncated, want)
	}
}

// The number of steps of an explanation is near-linear in the number of unknown and random
// conditions, even if they have the same text.
func TestExplainIsLinearInConditions(t *testing.T) {
	p, err := rules.ParsePacket("out tcp 10.0.0.1:1 > 10.0.0.2:2")
	if err != nil {
		t.Fatal(err)
	}
	steps := func(n int, rule func(i int) rules.Rule) int {
		list := make([]rules.Rule, n)
		for i := range list {
			list[i] = rule(i)
		}
		rs := outputFilter(list...)
		m := newMeter(Budget{Time: time.Hour})
		readings := 0
		m.now = func() time.Time {
			readings++
			return m.lastReading
		}
		if limit := runLimited(func() {
			explain(&rs, p, assumptions{shared: newSharedState(&rs), meter: m})
		}); limit != "" {
			t.Fatalf("%d rules: limit %q, want none", n, limit)
		}
		return readings * stepsPerReading
	}
	condition := func(text string, effect rules.Effect) rules.Match {
		return rules.Unknown{Text: text, Effect: effect, Data: text}
	}
	for name, rule := range map[string]func(int) rules.Rule{
		"unknown conditions": func(i int) rules.Rule {
			return rules.Rule{
				Matches: []rules.Match{condition(fmt.Sprintf("unknown %d", i), rules.Reads)},
				Actions: []rules.Action{rules.SetMark{Value: uint32(i), Mask: ^uint32(0)}},
			}
		},
		"random conditions with the same text": func(int) rules.Rule {
			return dropRule(condition("random", rules.ReadsVarying))
		},
	} {
		few, many := steps(1000, rule), steps(8000, rule)
		if t.Logf("%s: %d steps, %d steps", name, few, many); many > 12*few {
			t.Errorf("%s: %d steps for 1000 rules, %d for 8000, want at most 12 times as many",
				name, few, many)
		}
	}
}

// compareBypass charges the memory of the differences that it returns.
func TestCompareBypassChargesMemoryOfDifferences(t *testing.T) {
	var list []rules.Rule
	for port := range uint16(100) {
		list = append(list, rules.Rule{Matches: []rules.Match{
			rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
			rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(port)},
		}, Actions: []rules.Action{rules.RedirectTo{Port: 1000 + port}}})
	}
	desired := outputFilter(list...)
	desired.Tables[0].Chains[0].Base.Type = rules.NAT
	d := newDecision(withRouting(desired), withRouting(outputFilter()), Options{})
	found := 0
	d.compare = func(s *space, left, right *walk) comparison {
		// The first call fills the diagrams' tables, so that the second allocates only the
		// differences.
		s.compareBypass(left, right)
		before := s.meter.memory
		c := s.compareBypass(left, right)
		if counted := s.meter.memory - before; counted < int64(len(c.differences)*differenceSize) {
			t.Errorf("%d differences count as %d bytes, want at least %d each", len(c.differences),
				counted, differenceSize)
		}
		found = max(found, len(c.differences))
		return c
	}
	d.decideScope(packetScope{}, rules.Output)
	if found < 100 {
		t.Errorf("%d differences, want at least 100", found)
	}
}

func TestContainsDoesNotUseTheBudgetOfTheDecision(t *testing.T) {
	rule := dropRule(rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}})
	result := Decide(withRouting(outputFilter(rule)), withRouting(outputFilter()), Options{})
	if len(result.Classes) == 0 {
		t.Fatal("no classes, want one")
	}
	class := result.Classes[0]
	class.space.meter.budget.Memory = 1
	class.space.meter.stepsLeft = 1
	class.space.meter.budget.Time = 1
	nodes := len(class.space.nodes)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 10_000 {
				if !class.Contains(class.Witness) {
					t.Error("the class does not contain its witness")
				}
			}
		})
	}
	wg.Wait()
	if len(class.space.nodes) != nodes {
		t.Errorf("%d nodes, want %d as after the decision", len(class.space.nodes), nodes)
	}
}

// The alternatives of a tuple that many rules share are examined and written once.
func TestSharedAlternativesAreProcessedOnce(t *testing.T) {
	const size = 300
	tuple := rules.MatchTuple{}
	for i := range uint32(size) {
		tuple.Alternatives = append(tuple.Alternatives, []rules.Match{
			rules.MatchOwner{IDs: rules.Singles(i)},
		})
	}
	var list []rules.Rule
	for range size {
		list = append(list, dropRule(tuple))
	}
	rs := outputFilter(list...)
	calls := 0
	hasMatch(&rs, func(rules.Match) bool {
		calls++
		return false
	})
	if calls != size {
		t.Errorf("%d alternatives examined, want %d", calls, size)
	}
	const limit = 1 << 40
	m := newMeter(Budget{})
	m.stepsLeft = limit
	newRuleWriter(m).chain(&rs.Tables[0], &rs.Tables[0].Chains[0])
	if steps := limit - m.stepsLeft; steps < size || steps > 1000*size {
		t.Errorf("%d steps for the text of %d rules with %d alternatives, want at least %d and at most %d",
			steps, size, size, size, 1000*size)
	}
}

// The rules contain a prefix for each usual first character.
func TestInterfaceNamesWithUnusualFirstCharacterHaveAClass(t *testing.T) {
	const usual = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	var names []rules.InterfaceName
	for _, c := range usual {
		names = append(names, rules.InterfaceName{Name: string(c), Prefix: true})
	}
	accept := rules.Rule{
		Matches: []rules.Match{rules.MatchInterface{Out: true, Names: names}},
		Actions: []rules.Action{rules.Accept},
	}
	result := Decide(withRouting(outputFilter(accept, dropRule())), withRouting(outputFilter()),
		Options{})
	if len(result.Classes) == 0 {
		t.Errorf("%s, want classes of packets on interfaces whose names have another first character",
			result.StrictVerdict())
	}
}
