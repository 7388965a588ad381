package kerneltest_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestStatesOfTCPSegmentsFollowTheirFlags verifies the fact TCPStateFollowsFlags. It sends segments
// with all combinations of flags: each as the first one from its port, and each on a connection
// that exists. The kernel does not receive the segments, because their checksum is wrong.
func TestStatesOfTCPSegmentsFollowTheirFlags(t *testing.T) {
	const connectionPort = 4000
	for _, tc := range []struct{ family, network, address string }{
		{"ip", "ip4:6", "127.0.0.1"}, {"ip6", "ip6:6", "::1"},
	} {
		t.Run(tc.family, func(t *testing.T) {
			ns := netnstest.New(t)
			set := func(flags ...rules.TCPFlags) string {
				var texts []string
				for _, f := range flags {
					texts = append(texts, f.String())
				}
				return "{ " + strings.Join(texts, ", ") + " }"
			}
			first, later := set(rules.FirstFlags...), set(rules.LaterFlags...)
			both := set(slices.Concat(rules.FirstFlags, rules.LaterFlags)...)
			istiotest.Run(t, ns, fmt.Sprintf(`table %s a { chain output {
				type filter hook output priority 0
				tcp sport != %[2]d ct state new tcp flags & %[3]s != %[4]s counter
				ct state new,established,related tcp flags & %[3]s != %[6]s counter
				tcp sport != %[2]d ct state new tcp flags & %[3]s %[4]s counter
				tcp sport %[2]d ct state new,established tcp flags & %[3]s %[5]s counter
			}
			}`, tc.family, connectionPort, "(fin | syn | rst | ack | urg)", first, later, both),
				"nft", "-f", "-")
			err := ns.Do(func() error {
				// The segments have wrong sequence numbers.
				const liberal = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
				if err := os.WriteFile(liberal, []byte("1"), 0); err != nil {
					return err
				}
				c, err := net.Dial(tc.network, tc.address)
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				send := func(port uint16, flags rules.TCPFlags) error {
					_, err := c.Write(segment(port, 9, flags))
					return err
				}
				for flags := range 256 {
					err := send(uint16(10000+flags), rules.TCPFlags(flags))
					if err != nil {
						return fmt.Errorf("send flags %s: %w", rules.TCPFlags(flags), err)
					}
				}
				for flags := range 256 {
					for _, f := range []rules.TCPFlags{rules.ACK, rules.TCPFlags(flags)} {
						if err := send(connectionPort, f); err != nil {
							return fmt.Errorf("send flags %s: %w", f, err)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			requireMatches(t, ns, 2)
		})
	}
}

// TestICMPOfTheOtherFamilyIsInvalid verifies the fact ICMPOfOtherFamilyIsInvalid.
func TestICMPOfTheOtherFamilyIsInvalid(t *testing.T) {
	for _, tc := range []struct{ family, network, address, protocol string }{
		{"ip", "ip4:58", "127.0.0.1", "58"}, {"ip6", "ip6:1", "::1", "1"},
	} {
		t.Run(tc.family, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, fmt.Sprintf(`table %s a { chain output {
				type filter hook output priority 0
				meta l4proto %[2]s ct state != invalid counter
				meta l4proto %[2]s ct state invalid counter
			}
			}`, tc.family, tc.protocol), "nft", "-f", "-")
			err := ns.Do(func() error {
				c, err := net.Dial(tc.network, tc.address)
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				for i := range 256 {
					if _, err := c.Write(icmpMessage(byte(i), nil)); err != nil {
						return fmt.Errorf("send type %d: %w", i, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			requireMatches(t, ns, 1)
		})
	}
}

// requireMatches verifies that the first rules of the only chain match no packet, and the others
// some.
func requireMatches(t *testing.T, ns *netns.NS, without int) {
	t.Helper()
	for i, r := range readLive(t, ns).Tables[0].Chains[0].Rules {
		if got := r.Hits.Packets > 0; got != (i >= without) {
			t.Errorf("rule %d, %s, matches %d packets, want some: %t", i+1, &r, r.Hits.Packets,
				i >= without)
		}
	}
}

// segment returns a TCP header without options and with a wrong checksum.
func segment(from, to uint16, flags rules.TCPFlags) []byte {
	header := make([]byte, 20)
	binary.BigEndian.PutUint16(header, from)
	binary.BigEndian.PutUint16(header[2:], to)
	header[12], header[13] = 5<<4, byte(flags)
	return header
}
