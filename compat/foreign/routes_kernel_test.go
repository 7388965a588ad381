package foreign_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRoutesOfSomePackets adds routes and policy rules by which captured packets leave the pod if
// their process chooses a certain type of service, source or destination. No foreign rule of
// netfilter is necessary, and the agent gets no event for most of these routes.
func TestRoutesOfSomePackets(t *testing.T) {
	precedingRule := netnstest.PolicyRule{Family: unix.AF_INET, Table: unix.RT_TABLE_LOCAL, Action: unix.FR_ACT_NOP}
	for _, row := range []struct {
		name     string
		rule     *netnstest.PolicyRule // added before the commands
		commands []string
		tos      int
		leaves   bool
		contains string // a part of the message
	}{
		{
			"a route for a type of service, and a packet with another one", nil,
			[]string{"ip route add 127.0.0.1 tos 0x10 via 10.244.1.1 dev eth0 table local src 10.244.1.5"},
			0x08,
			false, "ip -4 route unicast 127.0.0.1/32 tos 0x10",
		},
		{
			"a route for a type of service", nil,
			[]string{"ip route add 127.0.0.1 tos 0x10 via 10.244.1.1 dev eth0 table local src 10.244.1.5"},
			0x10,
			true, "ip -4 route unicast 127.0.0.1/32 tos 0x10",
		},
		{
			"the rule of the table local has no effect", &precedingRule,
			[]string{
				"ip rule add from 10.244.1.5 to 127.0.0.1 lookup 98 priority 1",
				"ip route add default via 10.244.1.1 dev eth0 table 98",
			},
			0, true, "ip -4 rule priority 1 from 10.244.1.5/32 to 127.0.0.1/32 lookup 98",
		},
		{
			"an encapsulation over lo", nil,
			[]string{
				"ip sr tunsrc set fd00:10:244:1::5",
				"ip route add 10.9.9.9/32 encap seg6 mode encap segs fd00:10:244:1::1 dev lo src 10.244.1.5",
			},
			0, true, "ip -4 route unicast 10.9.9.9/32 encap seg6 dev lo",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, "")
			istiotest.Run(t, network.Neighbor, `table inet watch { chain in { type filter hook prerouting priority -400
				ip daddr 127.0.0.1 counter
				ip6 nexthdr 43 counter; }; }`, "nft", "-f", "-")
			before := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if before.Verdict() != foreign.None || !before.IsValid(network.Pod) {
				t.Fatalf("verdict %s before the change: %s", before.Verdict(), strings.Join(before.Messages(), "\n"))
			}
			if row.rule != nil {
				istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "lookup", "local", "priority", "2")
				istiotest.Run(t, network.Pod, "", "ip", "rule", "del", "priority", "0")
				row.rule.Add(t, network.Pod)
			}
			for _, command := range row.commands {
				words := strings.Fields(command)
				istiotest.Run(t, network.Pod, "", words[0], words[1:]...)
			}
			send := func() error {
				fd, err := socket.New(rules.IPv4, rules.UDP)
				if err != nil {
					return err
				}
				defer func() { _ = unix.Close(fd) }()
				if err := errors.Join(
					unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TOS, row.tos), socket.Connect(fd, query.To),
				); err != nil {
					return err
				}
				_, err = unix.Write(fd, []byte("1\n"))
				return err
			}
			leaves := func() bool {
				counted := istiotest.Run(t, network.Neighbor, "", "nft", "list", "table", "inet", "watch")
				return strings.Count(counted, "counter packets 0") < 2
			}
			// The kernel drops an encapsulated packet until it has found the link-layer address.
			end := time.Now().Add(answerTimeout)
			for isFirst := true; isFirst || row.leaves && !leaves() && time.Now().Before(end); isFirst = false {
				if err := network.Pod.Do(send); err != nil {
					t.Fatal(err)
				}
			}
			if leaves() != row.leaves {
				t.Errorf("the packet leaves the pod: %t, want %t", !row.leaves, row.leaves)
			}
			// The agent gets events about policy rules. Therefore snapshots do not detect changes.
			if row.rule == nil && before.IsValid(network.Pod) {
				t.Error("the snapshot before the change is still valid")
			}
			found := checkEffect(t, network, desired, foreign.Unknown, row.contains)
			if found.LoopbackMissing {
				t.Error("LoopbackMissing is true, want false")
			}
		})
	}
}

// TestRouteWithThePassthroughSource adds routes that give the proxy's connections to its own pod
// the source address of the inbound proxy's connections to the application. The connections then
// reach the application without the inbound proxy. No foreign rule of netfilter is necessary.
func TestRouteWithThePassthroughSource(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for _, row := range []struct {
			name     string
			to       netip.Addr
			commands []string
			contains string
		}{
			{
				"IPv4", testbed.PodIP4,
				[]string{"ip route replace local 10.244.1.5 dev eth0 table local src 127.0.0.6"},
				"ip -4 route local 10.244.1.5/32 dev if2 table 255 src 127.0.0.6",
			},
			{
				"IPv6", testbed.PodIP6,
				[]string{
					"ip -6 route del local fd00:10:244:1::5 dev eth0 table local",
					"ip -6 route add local fd00:10:244:1::5 dev lo table local src ::6",
				},
				"ip -6 route local fd00:10:244:1::5/128 dev lo table 255 src ::6",
			},
		} {
			t.Run(string(mode)+", "+row.name, func(t *testing.T) {
				network, desired := podWithDNS(t, mode)
				toItself := testbed.Call{
					Network: "tcp", Owner: testbed.ProxyOwner, To: netip.AddrPortFrom(row.to, 8080),
					Timeout: answerTimeout,
				}
				if mode == rules.ModeTProxy {
					toItself.Owner = testbed.TProxyOwner
				}
				checkAnswer := func(want testbed.Name) {
					t.Helper()
					if answer, err := network.Dial(toItself); err != nil || answer.By != want {
						t.Errorf("a connection of the proxy to its pod: %s, error %v, want an answer from %s",
							answer, err, want)
					}
				}
				checkAnswer(testbed.Inbound)
				before := checkEffect(t, network, desired, foreign.None, "")
				for _, command := range row.commands {
					words := strings.Fields(command)
					istiotest.Run(t, network.Pod, "", words[0], words[1:]...)
				}
				checkAnswer(testbed.Application)
				if before.IsValid(network.Pod) {
					t.Error("the snapshot before the change is still valid")
				}
				checkEffect(t, network, desired, foreign.Unknown, row.contains)
			})
		}
	}
}
