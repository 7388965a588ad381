package diff

import (
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// A tableSet is a set of four-bit numbers, implemented without diagrams.
type tableSet [16]bool

// anySet returns a random set, as a diagram and as a table.
func anySet(t *rapid.T, d *diagrams) (set, tableSet) {
	var table tableSet
	sets := []set{}
	for n := range table {
		if table[n] = rapid.Bool().Draw(t, "in"); !table[n] {
			continue
		}
		s := all
		for bit := uint32(3); ; bit-- {
			if n>>(3-bit)&1 == 1 {
				s = d.node(bit, none, s)
			} else {
				s = d.node(bit, s, none)
			}
			if bit == 0 {
				break
			}
		}
		sets = append(sets, s)
	}
	return d.unite(sets), table
}

// table returns the set as a table.
func (d *diagrams) table(s set) tableSet {
	var table tableSet
	for n := range table {
		at := s
		for at != none && at != all {
			root := d.root(at)
			at = map[bool]set{false: root.no, true: root.yes}[n>>(3-root.bit)&1 == 1]
		}
		table[n] = at == all
	}
	return table
}

func TestOperationsOnSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDiagrams(initialSize, newMeter(Budget{}))
		a, inA := anySet(t, d)
		b, inB := anySet(t, d)
		if (a == b) != (inA == inB) {
			t.Fatalf("the sets %v and %v have the numbers %d and %d, want equal numbers only for "+
				"equal sets", inA, inB, a, b)
		}
		for name, op := range map[string]struct {
			result set
			want   func(a, b bool) bool
		}{
			"and":   {d.and(a, b), func(a, b bool) bool { return a && b }},
			"or":    {d.or(a, b), func(a, b bool) bool { return a || b }},
			"minus": {d.minus(a, b), func(a, b bool) bool { return a && !b }},
			"not":   {d.not(a), func(a, _ bool) bool { return !a }},
			"xor":   {d.xor(a, b), func(a, b bool) bool { return a != b }},
		} {
			var want tableSet
			for n := range want {
				want[n] = op.want(inA[n], inB[n])
			}
			if got := d.table(op.result); got != want {
				t.Fatalf("%v %s %v is %v, want %v", inA, name, inB, got, want)
			}
		}
		c, inC := anySet(t, d)
		var wantChoice tableSet
		intersect := false
		for n := range wantChoice {
			intersect = intersect || inA[n] && inB[n]
			if wantChoice[n] = inC[n]; inA[n] {
				wantChoice[n] = inB[n]
			}
		}
		if got := d.table(d.ifElse(a, b, c)); got != wantChoice {
			t.Fatalf("if %v, then %v, else %v is %v, want %v", inA, inB, inC, got, wantChoice)
		}
		if got := d.intersects(a, b); got != intersect {
			t.Fatalf("%v intersects %v: %t, want %t", inA, inB, got, intersect)
		}
		// The projection removes the two bits in the middle.
		var want tableSet
		for n := range want {
			for _, middle := range []int{0, 2, 4, 6} {
				want[n] = want[n] || inA[n&^6|middle]
			}
		}
		if got := d.table(d.project(a, func(bit uint32) bool {
			return bit == 0 || bit == 3
		})); got != want {
			t.Fatalf("the projection of %v is %v, want %v", inA, got, want)
		}
	})
}

// TestTablesGrow creates more nodes than the initial tables can store.
func TestTablesGrow(t *testing.T) {
	s := newSpace(rules.IPv4, rules.Output, newInterfaceClasses(nil, newMeter(Budget{})),
		newDiagrams(initialSizeOfSingle, newMeter(Budget{})))
	sets := make([]set, 1000*initialSizeOfSingle)
	for i := range sets {
		sets[i] = s.is(destination, number(uint32(i*7919)))
	}
	whole := s.unite(sets)
	for i, one := range sets {
		if one != s.is(destination, number(uint32(i*7919))) || s.minus(one, whole) != none {
			t.Fatalf("set %d has changed or is not in the union", i)
		}
	}
	if n := len(s.spans(destination, whole)); n != len(sets) {
		t.Errorf("the union has %d numbers, want %d", n, len(sets))
	}
}

func TestSpansOfAFieldRoundTrip(t *testing.T) {
	texts := []string{
		"0.0.0.0/0", "10.0.0.0/8", "127.0.0.1/32", "255.255.255.255/32", "0.0.0.0/32",
		"128.0.0.0/1",
		"::/0", "::1/128", "fd00::/8", "ff00::/8", "8000::/1", "2001:db8::/33",
	}
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		s := newSpace(f, rules.Output, newInterfaceClasses(nil, newMeter(Budget{})),
			newDiagrams(initialSize, newMeter(Budget{})))
		rapid.Check(t, func(t *rapid.T) {
			var list []netipx.IPRange
			for _, text := range rapid.SliceOf(rapid.SampledFrom(texts)).Draw(t, "prefixes") {
				if p := netip.MustParsePrefix(text); rules.FamilyOf(p.Addr()) == f {
					list = append(list, netipx.RangeOfPrefix(p))
				}
			}
			list = rules.NormalizeAddrs(list)
			var want []span
			for _, r := range list {
				want = append(want, span{address(r.From()), address(r.To())})
			}
			packets := s.within(source, want)
			if got := s.spans(source, packets); !slices.Equal(got, want) {
				t.Fatalf("the set of the spans %v has the spans %v", want, got)
			}
			for _, r := range list {
				if s.minus(s.is(source, address(r.To())), packets) != none {
					t.Fatalf("%s is not in the set of %v", r.To(), list)
				}
			}
			width := len(s.bits[source])
			for _, v := range want {
				if back := address(v.first.address(width)); back != v.first {
					t.Fatalf("number %v became %v as an address and back", v.first, back)
				}
			}
		})
	}
}

func TestInterfacesOfAClassMatchTheSameRules(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) rules.InterfaceName {
		return rules.InterfaceName{
			Name:   rapid.StringMatching("[elo][t0]{0,2}").Draw(t, "name"),
			Prefix: rapid.Bool().Draw(t, "prefix"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 0, 5).Draw(t, "names")
		s := newSpace(rules.IPv4, rules.Prerouting, newInterfaceClasses(names, newMeter(Budget{})),
			newDiagrams(initialSize, newMeter(Budget{})))
		iface := rapid.StringMatching("[elo][t0]{0,3}").Draw(t, "interface")
		class := s.interfaces.classOf(iface)
		if class < 0 {
			t.Fatalf("%s is in no class of %v", iface, s.interfaces.classes)
		}
		for _, n := range names {
			if n.Contains(iface) != n.Contains(s.interfaces.classes[class].example) {
				t.Fatalf("%s and %s are in one class, but only one of them matches %s", iface,
					s.interfaces.classes[class].example, n)
			}
		}
	})
}

// TestImpossibleInterfaceNames verifies that no packet has an interface whose name the kernel does
// not permit (dev_valid_name), and that unusual permitted names have a class.
func TestImpossibleInterfaceNames(t *testing.T) {
	for _, n := range []rules.InterfaceName{
		{Name: "INVAL/D"},
		{Name: "."},
		{Name: ".."},
		{Name: "eth0:1"},
		{Name: "a b"},
		{Name: "a\u00a0b"}, // contains the byte 0xa0
		{Name: "a/", Prefix: true},
		{Name: "sixteen-letters-"},
	} {
		drops := rules.Rule{
			Matches: []rules.Match{rules.MatchInterface{Names: []rules.InterfaceName{n}}},
			Actions: []rules.Action{rules.Drop},
		}
		sides := [2]Side{}
		for i, list := range [][]rules.Rule{{drops}, nil} {
			base := &rules.Base{Type: rules.Filter, Hook: rules.Prerouting}
			sides[i].Ruleset = rules.Ruleset{Tables: []rules.Table{
				{Name: "t", Chains: []rules.Chain{{Name: "c", Base: base, Rules: list}}},
			}}
		}
		r := Decide(sides[0], sides[1], Options{})
		if got := r.StrictVerdict(); got != Equivalent {
			t.Errorf("a rule for interface %q: %s, want %s: %v", n, got, Equivalent, r.Classes)
		}
	}
	for _, name := range []string{"fifteen-letters", ".a", "a\u0085b", "a\u2003b"} {
		names := []rules.InterfaceName{{Name: name}, {Name: name, Prefix: true}}
		for _, n := range names {
			if newInterfaceClasses([]rules.InterfaceName{n}, newMeter(Budget{})).classOf(name) < 0 {
				t.Errorf("no class for interface %s, which matches %q", name, n)
			}
		}
	}
}
