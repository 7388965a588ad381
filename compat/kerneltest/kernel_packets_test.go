package kerneltest_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The packets of this file are sent by the kernel itself, so that the generator does not send them.

// TestResets checks that the answer of a reject rule enters the output hook with the connection of
// the rejected packet, and that NAT does not translate it.
func TestResets(t *testing.T) {
	network := newTestbed(t)
	istiotest.Run(t, network.Pod, `table ip a {
		chain early { type filter hook output priority -300; ct state related counter meta mark set 7
		}
		chain nat { type nat hook output priority -100; tcp sport 81 counter redirect to :99
		}
		chain answers { type filter hook prerouting priority -150; tcp dport 81 reject with tcp reset
		}
	}`, "nft", "-f", "-")
	err := network.Neighbour.Do(func() error {
		c, err := net.Dial("tcp4", "10.244.1.5:81")
		if err == nil {
			return c.Close()
		}
		return err
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial: %v, want the answer of the rule", err)
	}
	live := readLive(t, network.Pod)
	for _, c := range live.Tables[0].Chains[:2] {
		if c.Rules[0].Hits.Packets != 1 {
			t.Errorf("chain %s: the kernel has counted %d resets, want 1", c.Name,
				c.Rules[0].Hits.Packets)
		}
	}
	const reset = "out tcp 10.244.1.5:81 > 10.244.1.1:4000 dev eth0 no-socket state related reply flags rst,ack"
	got := diff.Explain(live, parsed(t, reset)).Outcome
	if want := (rules.Outcome{Mark: 7}); got != want {
		t.Errorf("the model: %s, want: %s", got, want)
	}
}

// TestCopies checks that the copy of a multicast packet that the host itself receives has a
// connection before conntrack, and that no decision relies on the opposite.
func TestCopies(t *testing.T) {
	network := newTestbed(t)
	istiotest.Run(t, network.Pod, `table ip a {
		chain early { type filter hook prerouting priority -300; iifname "eth0" ct state new counter
		}
		chain late { type filter hook prerouting priority 0; ct state new counter
		}
	}`, "nft", "-f", "-")
	group := &net.UDPAddr{IP: net.IPv4(224, 1, 1, 1), Port: 5000}
	err := network.Pod.Do(func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		receiver, err := net.ListenMulticastUDP("udp4", device, group)
		if err != nil {
			return err
		}
		defer receiver.Close()
		raw, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 244, 1, 5)}, group)
		if err != nil {
			return err
		}
		defer raw.Close()
		if err := loopBack(raw); err != nil {
			return err
		}
		if _, err := raw.Write([]byte("x")); err != nil {
			return err
		}
		_, _, err = receiver.ReadFrom(make([]byte, 8))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	live := readLive(t, network.Pod)
	early := &live.Tables[0].Chains[0].Rules[0]
	if early.Hits.Packets != 1 {
		t.Errorf("the kernel has counted %d packets with a connection, want 1", early.Hits.Packets)
	}
	early.Actions = append(early.Actions, rules.Drop)
	const copied = "in udp 10.244.1.5:4000 > 224.1.1.1:5000 dev eth0 status confirmed dst-type multicast copy"
	if got := diff.Explain(live, parsed(t, copied)).Outcome; !got.Dropped {
		t.Errorf("the model: %s, want: dropped", got)
	}
	r := diff.Decide(diff.Side{Ruleset: *live}, diff.Side{}, diff.Options{})
	if r.Verdict(true) != diff.Different {
		t.Errorf("a rule that drops copies, and none: %s", r.Verdict(true))
	}
}

// loopBack makes the host receive the multicast packets of a socket. net.ListenMulticastUDP
// disables that only for its own socket.
func loopBack(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1)
	})
	return errors.Join(err, set)
}

// TestKernelSockets checks which rules match a reset of the TCP stack, which has a socket without
// an owner.
func TestKernelSockets(t *testing.T) {
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		t.Run(string(p), func(t *testing.T) {
			ns := netnstest.New(t)
			program := map[kerneltest.Program]string{legacy: "iptables-legacy", iptablesNFT: "iptables-nft"}[p]
			for _, match := range [][]string{
				{"--socket-exists", "-j", "MARK", "--or-mark", "1"},
				{"!", "--socket-exists", "-j", "MARK", "--or-mark", "2"},
				{"--uid-owner", "0-4294967294", "-j", "MARK", "--or-mark", "4"},
				{"!", "--uid-owner", "5", "-j", "MARK", "--or-mark", "8"},
				{"!", "--uid-owner", "5", "--socket-exists", "-j", "MARK", "--or-mark", "16"},
				{"!", "--uid-owner", "5", "!", "--gid-owner", "6", "-j", "MARK", "--or-mark", "32"},
				{"--uid-owner", "5", "!", "--gid-owner", "6", "-j", "MARK", "--or-mark", "64"},
			} {
				istiotest.Run(t, ns, "", program, append([]string{
					"-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "--tcp-flags", "RST", "RST", "-m", "owner",
				}, match...)...)
			}
			istiotest.Run(t, ns, `table ip native {
				chain c { type filter hook output priority -140
				tcp flags & rst == rst meta skuid != 5 counter meta mark set meta mark or 128
				tcp flags & rst == rst meta skgid >= 0 counter meta mark set meta mark or 256
				}
			}`, "nft", "-f", "-")
			err := ns.Do(func() error {
				c, err := net.Dial("tcp4", "127.0.0.1:81")
				if err == nil {
					return c.Close()
				}
				return err
			})
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("dial: %v, want a reset", err)
			}
			live := readLive(t, ns)
			const want = 1 | 8 | 16 | 32
			if kernel := matchedMarks(live); kernel != want {
				t.Errorf("the kernel: rules of mark %#x, want %#x", kernel, want)
			}
			const reset = "out tcp 127.0.0.1:81 > 127.0.0.1:4000 kernel-socket state established reply flags rst,ack"
			if got := diff.Explain(live, parsed(t, reset)).Outcome; got.Mark != want || got.Undecided != "" {
				t.Errorf("the model: %s, want mark %#x", got, want)
			}
		})
	}
}

// matchedMarks returns the marks of the rules that packets matched.
func matchedMarks(rs *rules.Ruleset) uint32 {
	found := uint32(0)
	for _, table := range rs.Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				for _, a := range r.Actions {
					if set, ok := a.(rules.SetMark); ok && r.Hits.Packets > 0 {
						found |= set.Value
					}
				}
			}
		}
	}
	return found
}

func readLive(t *testing.T, ns *netns.NS) *rules.Ruleset {
	t.Helper()
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	return &live.Ruleset
}

func parsed(t *testing.T, text string) rules.Packet {
	t.Helper()
	p, err := rules.ParsePacket(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
