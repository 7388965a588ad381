package nft

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// expecting reads the table of Sluice in the namespace with an expectation of a ruleset, and
// returns the results of the expectation.
func expecting(
	t tester, ns *netns.NS, rs rules.Ruleset,
) (x *expectation, met bool, got rules.Ruleset) {
	t.Helper()
	x = newExpectation(&rs.Tables[0])
	within(t, ns, func(c *conn) error {
		found, err := c.findSluiceTable()
		if err != nil {
			return err
		}
		snapshot, err := c.readSluiceTable(found, x)
		if err != nil {
			return err
		}
		met = x.isMet(&snapshot.tables[0])
		got.Tables = []rules.Table{snapshot.tables[0].Table}
		return nil
	})
	return x, met, got
}

// TestAppliedRulesAreRecognised checks that the kernel dumps every rule as it was sent.
func TestAppliedRulesAreRecognised(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := compiled(e.change)
			applied(t, ns, rs, Created)
			x, met, got := expecting(t, ns, rs)
			if x.others != 0 || !met {
				t.Errorf("%d rules were not recognized; met %v", x.others, met)
			}
			if !sameTables(rs, got) {
				t.Errorf("read\n%s", listing(rules.Compare(rules.Ruleset{Tables: rs.Tables}, got)))
			}
		})
	}
}

// TestDriftFromTheExpectedRulesetIsRead makes small changes of the ruleset.
func TestDriftFromTheExpectedRulesetIsRead(t *testing.T) {
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

// TestExpectedRulesetDoesNotChangeWhatIsRead expects a ruleset that differs from the actual one.
func TestExpectedRulesetDoesNotChangeWhatIsRead(t *testing.T) {
	ns := netnstest.New(t)
	redirects := AnyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		present, wanted := rules.MustCompile(redirects.Draw(t, "present")),
			rules.MustCompile(redirects.Draw(t, "wanted"))
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
				t.Fatalf("read\n%s",
					listing(rules.Compare(rules.Ruleset{Tables: present.Tables}, got)))
			}
			if met && !equal {
				t.Fatal("met by another ruleset")
			}
		}
	})
}

// TestSetThatDiffersFromTheDesiredOne covers sets with the expected name and other contents.
func TestSetThatDiffersFromTheDesiredOne(t *testing.T) {
	const name = "excluded"
	web := ports(false, "80,443")
	two := addrs("10.0.0.0/8", "192.168.0.0/16")
	two.Set = name
	some := two
	some.Set = ""
	like := func(m rules.Match, change func(*decodedSet)) *decodedSet {
		s := &decodedSet{
			anonymous: setOf(m).anonymous, interval: setOf(m).interval, elements: setOf(m).elements,
		}
		change(s)
		return s
	}
	swap := func(s *decodedSet) { slices.Reverse(s.elements) }
	for _, row := range []struct {
		name string
		got  *decodedSet
		of   rules.Match
		want bool
	}{
		{"the same", like(web, func(*decodedSet) {}), web, true},
		{"in another order", like(web, swap), web, true},
		{"not there", nil, web, false},
		{"not understood", like(web, func(s *decodedSet) {
			s.unknown = "set with flags 0x10"
		}), web, false},
		{"with a name", like(web, func(s *decodedSet) { s.anonymous = false }), web, false},
		{"of intervals", like(web, func(s *decodedSet) { s.interval = true }), web, false},
		{"with an element less", like(web, func(s *decodedSet) {
			s.elements = s.elements[:1]
		}), web, false},
		{"with another element", like(web, func(s *decodedSet) {
			s.elements[0].key = portKey(81)
		}), web, false},
		{"with an end for a start", like(web, func(s *decodedSet) {
			s.elements[0].end = true
		}), web, false},
		{"the same addresses", like(two, func(*decodedSet) {}), two, true},
		{"addresses in another order", like(two, swap), two, true},
		{"addresses without a name", like(some, func(*decodedSet) {}), some, true},
		{"addresses, not there", nil, two, false},
		{"addresses, not understood", like(two, func(s *decodedSet) {
			s.unknown = "set with flags 0x10"
		}), two, false},
		{"addresses that lack their name", like(two, func(s *decodedSet) {
			s.anonymous = true
		}), two, false},
		{"addresses with a name for none", like(some, func(s *decodedSet) {
			s.anonymous = false
		}), some, false},
		{"not of intervals", like(two, func(s *decodedSet) { s.interval = false }), two, false},
		{"without the last end", like(two, func(s *decodedSet) {
			s.elements = s.elements[:3]
		}), two, false},
		{"with another address", like(two, func(s *decodedSet) {
			s.elements[3].key = []byte{192, 170, 0, 0}
		}), two, false},
		{"with the end of nothing", like(two, func(s *decodedSet) {
			s.elements = append(s.elements, element{make([]byte, 4), true})
		}), two, false},
		{"in two parts that touch", like(two, func(s *decodedSet) {
			s.elements = append(s.elements, element{
				[]byte{10, 9, 0, 0}, true,
			}, element{[]byte{10, 9, 0, 0}, false})
		}), two, false},
		{"without anything", like(two, func(s *decodedSet) { s.elements = nil }), two, false},
		{"of addresses, for ports", like(two, func(*decodedSet) {}), web, false},
		{"of ports, for addresses", like(web, func(*decodedSet) {}), some, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.got.equalsMatch(row.of, name); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
	if like(two, func(*decodedSet) {}).equalsMatch(two, "other") {
		t.Error("the name of a named set does not count")
	}
}

// TestTheGenerationIsGuessedRight checks that the generation is not requested if there was no
// change since the last answer.
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

// TestAWrongGuessOfTheGenerationIsCorrected needs the kernel, which answers before the send of the
// request returns.
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

// generationRead reads the table of Sluice with a guess that differs from the generation by the
// given number, and returns the generation of the result.
func generationRead(t *testing.T, c *conn, wrong ...uint16) uint32 {
	t.Helper()
	found, err := c.findSluiceTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range wrong {
		c.lastGeneration += by
	}
	snapshot, err := c.readSluiceTable(found, newExpectation(nil))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.generation
}
