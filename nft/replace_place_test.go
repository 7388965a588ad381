package nft

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// dropUDP returns a ruleset that drops every sent UDP packet. port changes the first rule, but not
// the effect of the ruleset.
func dropUDP(port uint16) rules.Ruleset {
	udp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}
	return rules.Ruleset{Tables: []rules.Table{{Name: rules.TableName, Chains: []rules.Chain{{
		Name: "output",
		Base: &rules.Base{Type: rules.Filter, Hook: rules.Output},
		Rules: []rules.Rule{
			{
				Matches: []rules.Match{
					udp, rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(port)},
				},
				Actions: []rules.Action{rules.Drop},
			},
			{Matches: []rules.Match{udp}, Actions: []rules.Action{rules.Drop}},
		},
	}}}}}
}

func TestAReplacementKeepsTheChainsThatStayAttached(t *testing.T) {
	ns := netnstest.New(t)
	handles := func() []uint64 {
		var found []uint64
		withConn(t, ns, func(c *conn) error {
			_, err := c.dump(unix.NFT_MSG_GETCHAIN, rules.Inet, nil, func(_ uint8, a attributes) {
				found = append(found, a.Number64(unix.NFTA_CHAIN_HANDLE))
			})
			return err
		})
		return found
	}
	mustApply(t, ns, dropUDP(1), Created)
	before := handles()
	mustApply(t, ns, dropUDP(2), Replaced)
	if after := handles(); !slices.Equal(before, after) {
		t.Errorf("the handles of the chains changed from %v to %v, want the same chains", before, after)
	}
}

// TestNoPacketPassesDuringAReplacement sends packets continuously while the rules that drop them
// are replaced continuously. If a replacement deleted and created the chains, one in 150,000
// packets would pass. Only a long test detects such a gap. A short test detects longer ones.
func TestNoPacketPassesDuringAReplacement(t *testing.T) {
	duration := 500 * time.Millisecond
	if long {
		duration = 30 * time.Second
	}
	ns := netnstest.New(t)
	mustApply(t, ns, dropUDP(1), Created)
	var stop atomic.Bool
	done := make(chan error, 1)
	var sent, passed int
	go func() {
		done <- ns.Do(func() (err error) {
			sent, passed, err = sendDatagrams(&stop)
			return err
		})
	}()
	n := replaceFor(t, ns, duration)
	stop.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if passed != 0 || n == 0 || sent == 0 {
		t.Errorf("%d of %d packets passed during %d replacements, want 0 of at least 1 packet "+
			"during at least 1 replacement", passed, sent, n)
	}
	t.Logf("%d packets, %d replacements", sent, n)
}

// replaceFor replaces the ruleset continuously for the given time, and returns the number of
// replacements.
func replaceFor(t *testing.T, ns *netns.NS, duration time.Duration) int {
	t.Helper()
	n := 0
	for start := time.Now(); time.Since(start) < duration; n++ {
		if result, err := Apply(ns, dropUDP(uint16(2+n%2))); err != nil ||
			result.Outcome != Replaced {
			t.Fatalf("replacement %d: %+v, error %v, want %s", n, result, err, Replaced)
		}
	}
	return n
}

// sendDatagrams sends datagrams from a socket to itself until stop is set. It counts the sent
// datagrams and those that no rule drops.
func sendDatagrams(stop *atomic.Bool) (sent, arrived int, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	self := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 9999}
	if err := unix.Bind(fd, self); err != nil {
		return 0, 0, err
	}
	var buf [16]byte
	for !stop.Load() {
		for range 1000 {
			// The sender of a dropped packet receives EPERM.
			if unix.Sendto(fd, buf[:], 0, self) == nil {
				arrived++
			}
		}
		sent += 1000
	}
	return sent, arrived, nil
}
