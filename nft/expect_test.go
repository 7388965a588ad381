package nft

import (
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// expecting reads our table in the namespace while a ruleset is expected, and returns what the expectation says of it.
func expecting(t tester, ns *netns.NS, rs rules.Ruleset) (x *expectation, met bool, got rules.Ruleset) {
	t.Helper()
	x = newExpectation(&rs.Tables[0])
	within(t, ns, func(c *conn) error {
		found, err := c.findOurs()
		if err != nil {
			return err
		}
		snapshot, err := c.readOurs(found, x)
		if err != nil {
			return err
		}
		met = x.met(&snapshot.tables[0])
		got.Tables = []rules.Table{snapshot.tables[0].Table}
		return nil
	})
	return x, met, got
}

// TestWhatWasAppliedIsRecognised wants every rule to be dumped as it was sent, but for those with a counter.
func TestWhatWasAppliedIsRecognised(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := compiled(e.change)
			applied(t, ns, rs, Created)
			counters := 0
			for _, c := range rs.Tables[0].Chains {
				for _, r := range c.Rules {
					if len(r.Actions) > 0 && r.Actions[0] == rules.Action(rules.Count{}) {
						counters++
					}
				}
			}
			x, met, got := expecting(t, ns, rs)
			if x.strange != counters || met != (counters == 0) {
				t.Errorf("%d rules were not recognised, want %d; met %v", x.strange, counters, met)
			}
			if !sameTables(rs, got) {
				t.Errorf("read\n%s", listing(rules.Compare(rules.Ruleset{Tables: rs.Tables}, got)))
			}
		})
	}
}

// TestAnExpectationIsNotWishfulThinking changes the ruleset by a little, whatever that is.
func TestAnExpectationIsNotWishfulThinking(t *testing.T) {
	for _, row := range []struct{ name, change string }{
		{"a rule more at the end", "add rule inet sluice nat-output accept"},
		{"a rule more at the beginning", "insert rule inet sluice nat-output accept"},
		{"a rule less", "flush chain inet sluice nat-output"},
		{"a chain more", "add chain inet sluice other"},
		{"a base chain more", "add chain inet sluice other { type filter hook input priority 7; }"},
		{"another policy", "chain inet sluice nat-output { policy drop; }"},
		{"an element more", "add element inet sluice outbound-exclude-ipv4 { 20.9.9.9 }"},
		{"an element less", "delete element inet sluice outbound-exclude-ipv4 { 20.0.0.0/24 }"},
		{"the table sleeps", "add table inet sluice { flags dormant; }"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := manyPrefixes(0, 3)
			applied(t, ns, rs, Created)
			if _, met, _ := expecting(t, ns, rs); !met {
				t.Fatal("not met before the change")
			}
			load(t, ns, row.change)
			if _, met, _ := expecting(t, ns, rs); met {
				t.Error("met")
			}
			applied(t, ns, rs, Replaced, Updated)
			holds(t, ns, rs)
		})
	}
}

// TestAnExpectationChangesNothingOfWhatIsRead expects one ruleset and finds another.
func TestAnExpectationChangesNothingOfWhatIsRead(t *testing.T) {
	ns := netnstest.New(t)
	redirects := AnyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		present, wanted := rules.Compile(redirects.Draw(t, "present")), rules.Compile(redirects.Draw(t, "wanted"))
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(ns, present); err != nil {
			t.Fatal(err)
		}
		for _, rs := range []rules.Ruleset{present, wanted} {
			equal := sameTables(present, rs)
			_, met, got := expecting(t, ns, rs)
			if !sameTables(present, got) {
				t.Fatalf("read\n%s", listing(rules.Compare(rules.Ruleset{Tables: present.Tables}, got)))
			}
			if met && !equal {
				t.Fatal("met by another ruleset")
			}
		}
	})
}

// TestASetThatIsNotTheWantedOne covers what a dump could say of a set with the right name.
func TestASetThatIsNotTheWantedOne(t *testing.T) {
	want := func() *set { return setOf(ports(false, "80,443")) }
	like := func(change func(*decodedSet)) *decodedSet {
		s := &decodedSet{anonymous: true, elements: want().elements}
		change(s)
		return s
	}
	for _, row := range []struct {
		name string
		got  *decodedSet
		want bool
	}{
		{"the same", like(func(*decodedSet) {}), true},
		{"in another order", like(func(s *decodedSet) { s.elements[0], s.elements[1] = s.elements[1], s.elements[0] }), true},
		{"not there", nil, false},
		{"not understood", like(func(s *decodedSet) { s.unknown = "set with flags 0x10" }), false},
		{"with a name", like(func(s *decodedSet) { s.anonymous = false }), false},
		{"of intervals", like(func(s *decodedSet) { s.interval = true }), false},
		{"with an element less", like(func(s *decodedSet) { s.elements = s.elements[:1] }), false},
		{"with another element", like(func(s *decodedSet) { s.elements[0].key = portKey(81) }), false},
		{"with an end for a start", like(func(s *decodedSet) { s.elements[0].end = true }), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.got.holds(want(), "__set0"); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
	named := &set{ref: setRef{name: "a"}}
	if (&decodedSet{}).holds(named, "b") || !(&decodedSet{}).holds(named, "a") {
		t.Error("the name of a named set does not count")
	}
}

// TestTheGenerationIsGuessedRight: where nobody has written since the last answer, it is not asked for.
func TestTheGenerationIsGuessedRight(t *testing.T) {
	ns := netnstest.New(t)
	applied(t, ns, example("sidecar-ipv4"), Created)
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		if messageOf(request) == messageType(unix.NFT_MSG_GETGEN) {
			t.Error("asked for")
		}
		return kernel(request)
	})
	if read := generationRead(t, c); read != generationOf(t, ns) {
		t.Errorf("generation %d, want %d", read, generationOf(t, ns))
	}
}

// TestAWrongGuessOfTheGenerationIsCorrected needs the kernel itself, which answers before the request is sent.
func TestAWrongGuessOfTheGenerationIsCorrected(t *testing.T) {
	ns := netnstest.New(t)
	applied(t, ns, example("sidecar-ipv4"), Created)
	var c *conn
	if err := ns.Do(func() (err error) { c, err = dial(); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if read := generationRead(t, c, 7); read != generationOf(t, ns) {
		t.Errorf("generation %d, want %d", read, generationOf(t, ns))
	}
}

// generationRead reads our table and returns the generation of which it is, after a guess that is wrong by so much.
func generationRead(t *testing.T, c *conn, wrong ...uint16) uint32 {
	t.Helper()
	found, err := c.findOurs()
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range wrong {
		c.lastGeneration += by
	}
	snapshot, err := c.readOurs(found, newExpectation(nil))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.generation
}
