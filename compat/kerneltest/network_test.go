package kerneltest_test

import (
	"errors"
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// network returns a network that exists until the test ends. It skips the test if a privilege or a
// program is missing.
func network(t testing.TB) *kerneltest.Network {
	t.Helper()
	netnstest.RequireIDs(t, 1337, 1337)
	for _, program := range []string{"nft", "iptables-legacy-restore", "iptables-nft-restore"} {
		netnstest.RequireBinary(t, program)
	}
	n, err := kerneltest.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestSentPacketsEqualTheirDescription sends generated packets while no rules are loaded. Each
// packet must enter its hook with the fields and the state of its description, and remain
// unchanged.
func TestSentPacketsEqualTheirDescription(t *testing.T) {
	n := network(t)
	if err := n.Load(nil); err != nil {
		t.Fatal(err)
	}
	g := kerneltest.NewGenerator(1)
	for range 20 {
		if err := n.Flush(); err != nil {
			t.Fatal(err)
		}
		packets := g.Packets(n, 50)
		observations, err := n.Observe(packets)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range observations {
			p := packets[i]
			effect, err := o.Effect(&p)
			if err := errors.Join(o.Err, err); err != nil {
				t.Fatalf("%s cannot be sent or observed: %v: %v", p, err, o.Entries)
			}
			want := kerneltest.Effect{
				To: p.Destination, Mark: p.Mark,
				HasConnection: p.State.HasConnection(), Untracked: p.State == rules.Untracked,
			}
			if p.Hook == rules.Output && p.OutInterface != "lo" {
				want.From = p.Source.Addr()
			}
			if want.HasConnection {
				want.ConntrackMark = p.ConntrackMark
				if !p.Reply && p.State != rules.Related && (p.Protocol == rules.TCP ||
					p.Protocol == rules.UDP) {
					want.Original = p.Destination
				}
			}
			if effect != want {
				t.Errorf("%s: effect %s, want %s", p, effect, want)
			}
			last := o.Entries[len(o.Entries)-1]
			if last.State != p.State {
				t.Errorf("%s: got state %s, want %s: %s", p, last.State, p.State, last)
			}
			if c := last.Connection; c != nil && p.State != rules.New && (c.Status != p.Status ||
				c.Reply != p.Reply) {
				t.Errorf("%s: got status %s, reply %t; want status %s, reply %t: %s", p, c.Status,
					c.Reply, p.Status, p.Reply, last)
			}
		}
	}
}

// TestAResetAnswersItsPacket verifies that a reset is part of the observation of the packet that it
// answers, although another packet has the same source.
func TestAResetAnswersItsPacket(t *testing.T) {
	n := network(t)
	if err := n.Load(rulesetOf(chains(rules.Inet, []string{
		base("filter", "output", "0"), "tcp dport 81 reject with tcp reset", "tcp dport 82 drop",
	}))); err != nil {
		t.Fatal(err)
	}
	for _, hosts := range [][2]string{{"10.244.1.5", "10.9.9.9"}, {"[fd00:1::2]", "[2001:db8::9]"}} {
		for _, flags := range []rules.TCPFlags{
			rules.SYN, rules.ACK, rules.FIN, rules.SYN | rules.FIN, rules.SYN | rules.ACK, 0,
		} {
			var packets []rules.Packet
			for _, port := range []string{":82", ":80", ":81", ":82", ":81"} {
				p := out(0, rules.TCP, hosts[0]+":1000", hosts[1]+port)
				p.Flags = flags
				p.State = kerneltest.InitialState(&p)
				n.Complete(&p)
				packets = append(packets, p)
			}
			if err := n.Flush(); err != nil {
				t.Fatal(err)
			}
			observations, err := n.Observe(packets)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"", "", "tcp reset", "", "tcp reset"} {
				if o := observations[i]; o.Answer != want || o.Err != nil {
					t.Errorf("packet %d, %s: answer %q, error %v; want answer %q", i, packets[i],
						o.Answer, o.Err, want)
				}
			}
		}
	}
}
