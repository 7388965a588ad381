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

// expecting reads the table of Sluice in the namespace with an expected ruleset, and returns the
// results of the comparison.
func expecting(
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

// TestAppliedRulesAreRecognized checks that the kernel dumps every rule as it was sent.
func TestAppliedRulesAreRecognized(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := compileWith(e.change)
			mustApply(t, ns, rs, Created)
			x, met, got := expecting(t, ns, rs)
			if x.unrecognized != 0 || !met {
				t.Errorf("%d rules were not recognized; matched %v", x.unrecognized, met)
			}
			if !sameTables(rs, got) {
				t.Errorf("read\n%s", listing(rules.Compare(rules.Ruleset{Tables: rs.Tables}, got)))
			}
		})
	}
}

// TestDriftFromTheExpectedRulesetIsRead checks that the comparison detects small changes of the
// ruleset, and that Apply repairs them.
func TestDriftFromTheExpectedRulesetIsRead(t *testing.T) {
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
			if _, met, _ := expecting(t, ns, rs); !met {
				t.Fatal("the ruleset does not match before the change")
			}
			load(t, ns, row.change)
			if _, met, _ := expecting(t, ns, rs); met {
				t.Error("the ruleset matches after the change")
			}
			mustApply(t, ns, rs, Replaced, Updated)
			checkRuleset(t, ns, rs)
		})
	}
}

// TestExpectedRulesetDoesNotAffectTheReading passes an expected ruleset that differs from the
// actual one.
func TestExpectedRulesetDoesNotAffectTheReading(t *testing.T) {
	ns := netnstest.New(t)
	redirects := AnyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		present, desired := rules.MustCompile(redirects.Draw(t, "present")),
			rules.MustCompile(redirects.Draw(t, "wanted"))
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(ns, present); err != nil {
			t.Fatal(err)
		}
		for _, rs := range []rules.Ruleset{present, desired} {
			equal := sameTables(present, rs)
			_, met, got := expecting(t, ns, rs)
			if !sameTables(present, got) {
				t.Fatalf("read\n%s",
					listing(rules.Compare(rules.Ruleset{Tables: present.Tables}, got)))
			}
			if met && !equal {
				t.Fatal("another ruleset matches")
			}
		}
	})
}

// TestSetThatDiffersFromTheDesiredOne covers sets with the expected name and different contents.
func TestSetThatDiffersFromTheDesiredOne(t *testing.T) {
	const name = "excluded"
	ports := matchDestinationPorts(false, "80,443")
	named := matchDestinations("10.0.0.0/8", "192.168.0.0/16")
	named.Set = name
	anonymous := named
	anonymous.Set = ""
	like := func(m rules.Match, change func(*decodedSet)) *decodedSet {
		s := &decodedSet{
			anonymous: newSet(m).anonymous, interval: newSet(m).interval, elements: newSet(m).elements,
		}
		change(s)
		return s
	}
	swap := func(s *decodedSet) { slices.Reverse(s.elements) }
	for _, row := range []struct {
		name  string
		got   *decodedSet
		match rules.Match
		want  bool
	}{
		{"an equal set", like(ports, func(*decodedSet) {}), ports, true},
		{"another order of elements", like(ports, swap), ports, true},
		{"a missing set", nil, ports, false},
		{"an unsupported set", like(ports, func(s *decodedSet) {
			s.unsupportedReason = "set with flags 0x10"
		}), ports, false},
		{"ports with a name", like(ports, func(s *decodedSet) { s.anonymous = false }), ports, false},
		{"ports in a set of intervals", like(ports, func(s *decodedSet) { s.interval = true }), ports, false},
		{"a missing element", like(ports, func(s *decodedSet) {
			s.elements = s.elements[:1]
		}), ports, false},
		{"a different element", like(ports, func(s *decodedSet) {
			s.elements[0].key = portBytes(81)
		}), ports, false},
		{"an end element instead of a start", like(ports, func(s *decodedSet) {
			s.elements[0].end = true
		}), ports, false},
		{"the same addresses", like(named, func(*decodedSet) {}), named, true},
		{"another order of addresses", like(named, swap), named, true},
		{"addresses without a name", like(anonymous, func(*decodedSet) {}), anonymous, true},
		{"a missing set of addresses", nil, named, false},
		{"an unsupported set of addresses", like(named, func(s *decodedSet) {
			s.unsupportedReason = "set with flags 0x10"
		}), named, false},
		{"addresses without the expected name", like(named, func(s *decodedSet) {
			s.anonymous = true
		}), named, false},
		{"addresses with an unexpected name", like(anonymous, func(s *decodedSet) {
			s.anonymous = false
		}), anonymous, false},
		{"addresses without the interval flag", like(named, func(s *decodedSet) { s.interval = false }), named, false},
		{"addresses without the last end element", like(named, func(s *decodedSet) {
			s.elements = s.elements[:3]
		}), named, false},
		{"a different address", like(named, func(s *decodedSet) {
			s.elements[3].key = []byte{192, 170, 0, 0}
		}), named, false},
		{"an end element without a start", like(named, func(s *decodedSet) {
			s.elements = append(s.elements, element{make([]byte, 4), true})
		}), named, false},
		{"an interval split into two", like(named, func(s *decodedSet) {
			s.elements = append(s.elements, element{
				[]byte{10, 9, 0, 0}, true,
			}, element{[]byte{10, 9, 0, 0}, false})
		}), named, false},
		{"no addresses", like(named, func(s *decodedSet) { s.elements = nil }), named, false},
		{"addresses instead of ports", like(named, func(*decodedSet) {}), ports, false},
		{"ports instead of addresses", like(ports, func(*decodedSet) {}), anonymous, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.got.equalsMatch(row.match, name); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
	if like(named, func(*decodedSet) {}).equalsMatch(named, "other") {
		t.Error("the name of a named set is ignored")
	}
}

// TestGenerationIsNotRequestedTwice checks that the generation is not requested again if there was
// no change since the last answer.
func TestGenerationIsNotRequestedTwice(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, example("sidecar-ipv4"), Created)
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		if messageOf(request) == messageType(unix.NFT_MSG_GETGEN) {
			t.Error("the generation was requested")
		}
		return kernel(request)
	})
	if read := generationRead(t, c); read != generationOf(t, ns) {
		t.Errorf("generation %d, want %d", read, generationOf(t, ns))
	}
}

// TestWrongGenerationIsCorrected reads with a wrong guess of the generation. It uses no script,
// because the guess is checked by a request whose answer must be available when the send returns.
func TestWrongGenerationIsCorrected(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, example("sidecar-ipv4"), Created)
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
