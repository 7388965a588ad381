package foreign_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestEffectOnPacketsOfBoundSockets sends packets from sockets that are bound to an interface,
// which needs no privilege. The foreign rules let them, or copies of them, leave the pod.
func TestEffectOnPacketsOfBoundSockets(t *testing.T) {
	for _, row := range []struct {
		name     string
		load     setup
		rules    string // the argument of load
		device   string
		protocol rules.Protocol
		to       netip.AddrPort
		// asksFirst sends a packet, which the proxy answers, before the socket is bound.
		asksFirst bool
		contains  string // a part of the message
	}{
		{
			name: "copies of packets on lo", load: legacy, device: "lo", protocol: rules.TCP, to: call.To,
			rules:    "*mangle\n-A POSTROUTING -o lo -d 10.9.9.9 -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			contains: "in a rule of iptables-legacy: ip mangle POSTROUTING #1",
		},
		{
			name: "another destination for redirected packets on eth0", load: nftables, device: "eth0",
			protocol: rules.UDP, to: query.To, asksFirst: true,
			rules: `table ip own { chain out { type filter hook postrouting priority 300
				oifname "eth0" ct state established udp dport 15053 ip daddr set 10.9.9.9 udp dport set 53; }; }`,
			contains: "in a rule of nft: ip own out #1",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, "")
			istiotest.Run(t, network.Neighbor, `table ip watch { chain in { type filter hook prerouting priority -400
				ip daddr 10.9.9.9 meta l4proto { tcp, udp } counter; }; }`, "nft", "-f", "-")
			row.load(t, network, row.rules)
			if err := network.Pod.Do(func() error {
				fd, err := socket.New(rules.IPv4, row.protocol)
				if err != nil {
					return err
				}
				defer func() { _ = unix.Close(fd) }()
				bind := func() error {
					return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, row.device)
				}
				if !row.asksFirst {
					if err := errors.Join(bind(), socket.Bind(fd, netip.AddrPortFrom(testbed.PodIP4, 0))); err != nil {
						return err
					}
					return socket.Connect(fd, row.to) // sends a SYN
				}
				if err := socket.Connect(fd, row.to); err != nil {
					return err
				}
				if _, err := unix.Write(fd, []byte("1\n")); err != nil {
					return err
				}
				wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				if n, err := unix.Poll(wait, int(answerTimeout.Milliseconds())); err != nil || n == 0 {
					return errors.Join(errors.New("the agent did not answer"), err)
				}
				if err := bind(); err != nil {
					return err
				}
				_, err = unix.Write(fd, []byte("2\n"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			counted := istiotest.Run(t, network.Neighbor, "", "nft", "list", "table", "ip", "watch")
			if strings.Contains(counted, "counter packets 0") {
				t.Error("no packet reaches the other machine, want at least one")
			}
			checkEffect(t, network, desired, foreign.Unknown, row.contains)
		})
	}
}
