package nft

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// everySecondPort returns n ports, no two of which are adjacent.
func everySecondPort(n int) []rules.PortRange {
	var list []rules.PortRange
	for i := range n {
		list = append(list, rules.Single(uint16(1+2*i)))
	}
	return list
}

// TestManyPortsAreASetOfIntervals covers numbers of ports below, equal to and above
// rules.ManyPorts.
func TestManyPortsAreASetOfIntervals(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	for n, want := range map[int]bool{
		2: false, rules.ManyPorts - 1: false, rules.ManyPorts: true, 5000: true,
	} {
		m := rules.MatchPort{Side: rules.Destination, Ports: everySecondPort(n)}
		if s := newSet(m); s.interval != want {
			t.Errorf("%d ports: a set of intervals: %t, want %t", n, s.interval, want)
		}
		r := rules.DefaultRedirect()
		r.InboundPorts.All, r.InboundExcludePorts = true, m.Ports
		rs := rules.MustCompile(r)
		if _, err := Apply(ns, rs); err != nil {
			t.Fatal(err)
		}
		checkRuleset(t, ns, rs)
	}
}

// BenchmarkManyPorts applies rulesets with numbers of ports below, equal to and above
// rules.ManyPorts.
func BenchmarkManyPorts(b *testing.B) {
	for _, n := range []int{rules.ManyPorts - 1, rules.ManyPorts, 5000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rules.DefaultRedirect()
			r.InboundPorts.All, r.InboundExcludePorts = true, everySecondPort(n)
			rs := rules.MustCompile(r)
			for b.Loop() {
				b.StopTimer()
				ns := netnstest.New(b)
				b.StartTimer()
				if _, err := Apply(ns, rs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
