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

// readExpecting reads the Sluice table of the namespace, and compares it with an expected ruleset
// during the read. met reports whether the table has the rules of the expected ruleset.
func readExpecting(
	t tester, ns *netns.NS, rs rules.Ruleset,
) (x *expectation, met bool, got rules.Ruleset) {
	t.Helper()
	x = newExpectation(&rs.Tables[0])
	withConn(t, ns, func(c *conn) error {
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

// TestAppliedRulesAreRecognized checks that the kernel dumps the expressions of every rule as the
// bytes that were sent.
func TestAppliedRulesAreRecognized(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := compileWith(e.change)
			mustApply(t, ns, rs, Created)
			x, met, got := readExpecting(t, ns, rs)
			if x.unrecognized != 0 || !met {
				t.Errorf("%d rules were not recognized, want 0; the table matches: %t, want true",
					x.unrecognized, met)
			}
			if !sameTables(rs, got) {
				t.Errorf("the read table differs from the applied one:\n%s",
					listing(rules.Compare(rules.Ruleset{Tables: rs.Tables}, got)))
			}
		})
	}
}

// TestDriftFromTheExpectedRulesetIsDetected checks that the comparison detects small changes of the
// table, and that Apply repairs them.
func TestDriftFromTheExpectedRulesetIsDetected(t *testing.T) {
	for _, row := range []struct{ name, change string }{
		{"an additional rule at the end", "add rule inet sluice nat-output accept"},
		{"an additional rule at the beginning", "insert rule inet sluice nat-output accept"},
		{"a missing rule", "flush chain inet sluice nat-output"},
		{"an additional chain", "add chain inet sluice other"},
		{"an additional base chain", "add chain inet sluice other { type filter hook input priority 7; }"},
		{"another policy", "chain inet sluice nat-output { policy drop; }"},
		{"an additional element", "add element inet sluice outbound-exclude-ipv4 { 20.9.9.9 }"},
		{"a missing element", "delete element inet sluice outbound-exclude-ipv4 { 20.0.0.0/24 }"},
		{"a dormant table", "add table inet sluice { flags dormant; }"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := manyPrefixes(0, 3)
			mustApply(t, ns, rs, Created)
			if _, met, _ := readExpecting(t, ns, rs); !met {
				t.Fatal("the table does not match the ruleset before the change")
			}
			load(t, ns, row.change)
			if _, met, _ := readExpecting(t, ns, rs); met {
				t.Error("the table still matches the ruleset after the change")
			}
			mustApply(t, ns, rs, Replaced, Updated)
			checkRuleset(t, ns, rs)
		})
	}
}

// TestExpectedRulesetDoesNotAffectWhatIsRead reads a table twice: first the expected ruleset equals
// the present one, then it is another ruleset.
func TestExpectedRulesetDoesNotAffectWhatIsRead(t *testing.T) {
	ns := netnstest.New(t)
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		present, other := rules.MustCompile(redirects.Draw(t, "present")),
			rules.MustCompile(redirects.Draw(t, "other"))
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(ns, present); err != nil {
			t.Fatal(err)
		}
		for _, expected := range []rules.Ruleset{present, other} {
			equal := sameTables(present, expected)
			_, met, got := readExpecting(t, ns, expected)
			if !sameTables(present, got) {
				t.Fatalf("the read table differs from the present one:\n%s",
					listing(rules.Compare(rules.Ruleset{Tables: present.Tables}, got)))
			}
			if met && !equal {
				t.Fatal("the present table matches an expected ruleset that differs from it")
			}
		}
	})
}

// TestSetIsComparedWithTheMatch covers sets with the expected name and equal or different contents.
func TestSetIsComparedWithTheMatch(t *testing.T) {
	const name = "excluded"
	ports := matchDestinationPorts(false, "80,443")
	named := matchDestinations("10.0.0.0/8", "192.168.0.0/16")
	named.Set = name
	anonymous := named
	anonymous.Set = ""
	// setOf returns the set of the match after a change.
	setOf := func(m rules.Match, change func(*decodedSet)) *decodedSet {
		s := &decodedSet{
			anonymous: newSet(m).anonymous, interval: newSet(m).interval, elements: newSet(m).elements,
		}
		change(s)
		return s
	}
	unchanged := func(*decodedSet) {}
	reverse := func(s *decodedSet) { slices.Reverse(s.elements) }
	for _, row := range []struct {
		name  string
		got   *decodedSet
		match rules.Match
		want  bool
	}{
		{"an equal set", setOf(ports, unchanged), ports, true},
		{"another order of elements", setOf(ports, reverse), ports, true},
		{"a missing set", nil, ports, false},
		{"an unsupported set", setOf(ports, func(s *decodedSet) {
			s.unsupportedReason = "set with flags 0x10"
		}), ports, false},
		{"ports with a name", setOf(ports, func(s *decodedSet) { s.anonymous = false }), ports, false},
		{"ports in a set of intervals", setOf(ports, func(s *decodedSet) {
			s.interval = true
		}), ports, false},
		{"a missing element", setOf(ports, func(s *decodedSet) {
			s.elements = s.elements[:1]
		}), ports, false},
		{"a different element", setOf(ports, func(s *decodedSet) {
			s.elements[0].key = portBytes(81)
		}), ports, false},
		{"an end element instead of a start", setOf(ports, func(s *decodedSet) {
			s.elements[0].end = true
		}), ports, false},
		{"the same addresses", setOf(named, unchanged), named, true},
		{"another order of addresses", setOf(named, reverse), named, true},
		{"addresses without a name", setOf(anonymous, unchanged), anonymous, true},
		{"a missing set of addresses", nil, named, false},
		{"an unsupported set of addresses", setOf(named, func(s *decodedSet) {
			s.unsupportedReason = "set with flags 0x10"
		}), named, false},
		{"addresses without the expected name", setOf(named, func(s *decodedSet) {
			s.anonymous = true
		}), named, false},
		{"addresses with an unexpected name", setOf(anonymous, func(s *decodedSet) {
			s.anonymous = false
		}), anonymous, false},
		{"addresses without the interval flag", setOf(named, func(s *decodedSet) {
			s.interval = false
		}), named, false},
		{"addresses without the last end element", setOf(named, func(s *decodedSet) {
			s.elements = s.elements[:3]
		}), named, false},
		{"a different address", setOf(named, func(s *decodedSet) {
			s.elements[3].key = []byte{192, 170, 0, 0}
		}), named, false},
		{"an end element without a start", setOf(named, func(s *decodedSet) {
			s.elements = append(s.elements, element{make([]byte, 4), true})
		}), named, false},
		{"an interval split into two", setOf(named, func(s *decodedSet) {
			s.elements = append(s.elements, element{
				[]byte{10, 9, 0, 0}, true,
			}, element{[]byte{10, 9, 0, 0}, false})
		}), named, false},
		{"no addresses", setOf(named, func(s *decodedSet) { s.elements = nil }), named, false},
		{"addresses instead of ports", setOf(named, unchanged), ports, false},
		{"ports instead of addresses", setOf(ports, unchanged), anonymous, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.got.equalsMatch(row.match, name); got != row.want {
				t.Errorf("the set equals the match: %t, want %t", got, row.want)
			}
		})
	}
	if setOf(named, unchanged).equalsMatch(named, "other") {
		t.Error("a set with another name equals the match, want a difference")
	}
}

// TestGenerationIsNotRequestedTwice checks that the generation is not requested if the ruleset has
// not changed since the last answer.
func TestGenerationIsNotRequestedTwice(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, example("sidecar-ipv4"), Created)
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		if firstMessageType(request) == messageType(unix.NFT_MSG_GETGEN) {
			t.Error("the generation was requested, want no request")
		}
		return kernel(request)
	})
	if read := generationOfRead(t, c, 0); read != generationOf(t, ns) {
		t.Errorf("generation %d, want %d", read, generationOf(t, ns))
	}
}

// TestWrongGenerationIsCorrected reads with a wrong guess of the generation. It uses no script,
// because the answer to the request that checks the guess must be available when the send returns.
func TestWrongGenerationIsCorrected(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, example("sidecar-ipv4"), Created)
	var c *conn
	if err := ns.Do(func() (err error) { c, err = dial(); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if read := generationOfRead(t, c, 7); read != generationOf(t, ns) {
		t.Errorf("generation %d, want %d", read, generationOf(t, ns))
	}
}

// generationOfRead reads the Sluice table and returns the generation of the result. The read begins
// with a guess that differs from the current generation by guessError.
func generationOfRead(t *testing.T, c *conn, guessError uint16) uint32 {
	t.Helper()
	found, err := c.findSluiceTable()
	if err != nil {
		t.Fatal(err)
	}
	c.lastGeneration += guessError
	snapshot, err := c.readSluiceTable(found, newExpectation(nil))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.generation
}
