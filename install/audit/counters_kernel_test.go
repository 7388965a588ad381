package audit_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// withExclusions adds a rule for each outcome that a connection in the test network can have.
func withExclusions(r *rules.Redirect) {
	r.Counters, r.DropInvalid = true, true
	r.DNS = rules.DNS{Capture: true, All: true}
	r.InboundExcludePorts = rules.Singles[uint16](9090)
	r.OutboundExcludePorts = rules.Singles[uint16](5432)
	r.OutboundExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	r.OwnerGroupsExclude = rules.Singles[uint32](7)
}

// TestConnectionsAreCounted makes connections of each outcome, before and after a repair, and
// checks the counters.
func TestConnectionsAreCounted(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
			t.Run(string(backend)+" "+string(mode), func(t *testing.T) {
				testConnectionsAreCounted(t, backend, mode)
			})
		}
	}
}

func testConnectionsAreCounted(t *testing.T, backend compat.BackendName, mode rules.Mode) {
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	proxy := testbed.ProxyOptions{Owner: testbed.ProxyOwner, Forward: true}
	if mode == rules.ModeTProxy {
		proxy.Owner, proxy.Transparent = testbed.TProxyOwner, true
	}
	if err := network.StartProxy(proxy); err != nil {
		t.Fatal(err)
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		t.Fatal(err)
	}
	r := newKernelTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": "pod"})
	r.options.Interval = 100 * time.Millisecond
	r.options.ProcessorTime = func() time.Duration { return 0 }
	rs, b := r.add("web", network.Pod, backend, withExclusions, func(r *rules.Redirect) { r.Mode = mode })
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })

	excluded := testbed.ApplicationOwner
	excluded.GID = 7
	want := map[string]float64{}
	connect := func(outcome string, n int, c testbed.Call) {
		t.Helper()
		c.Timeout = 5 * time.Second
		if c.From == testbed.FromPod && c.Owner == (rules.Owner{}) {
			c.Owner = testbed.ApplicationOwner
		}
		for range n {
			if answer, err := network.Dial(c); err != nil || answer.Outcome != testbed.Answered {
				t.Fatalf("%s: %v, error %v, want an answer", c, answer, err)
			}
		}
		want["sluice_rule_packets_total{shop,web,"+outcome+"}"] += float64(n)
	}
	to := func(protocol, address string) testbed.Call {
		return testbed.Call{Network: protocol, To: netip.MustParseAddrPort(address)}
	}
	connectAll := func() {
		connect("outbound,captured", 3, to("tcp", "10.9.9.9:80"))
		connect("outbound,captured", 1, to("tcp", "[2001:db8::9]:80"))
		connect("outbound,captured_dns", 2, to("udp", "10.9.9.9:53"))
		connect("outbound,excluded_port", 2, to("tcp", "10.9.9.9:5432"))
		connect("outbound,excluded_cidr", 4, to("tcp", "192.0.2.1:80"))
		excludedGroup := to("tcp", "10.9.9.9:80")
		excludedGroup.Owner = excluded
		connect("outbound,excluded_owner", 5, excludedGroup)
		inbound := to("tcp", "10.244.1.5:80")
		inbound.From = testbed.FromNeighbor
		connect("inbound,captured", 6, inbound)
		inbound = to("tcp", "10.244.1.5:9090")
		inbound.From = testbed.FromNeighbor
		connect("inbound,excluded_port", 1, inbound)
		sendInvalid(t, network.Neighbor, netip.MustParseAddr("10.244.1.5"))
		want["sluice_rule_packets_total{shop,web,inbound,dropped_invalid}"]++
	}
	waitCounted := func(when string) {
		t.Helper()
		rulestest.Eventually(t, when, func() bool {
			for series, n := range want {
				got := r.metric(series)
				if mode == rules.ModeTProxy && got > n &&
					series == "sluice_rule_packets_total{shop,web,inbound,excluded_port}" {
					continue // counted for each packet
				}
				if got < n {
					return false
				}
				if got > n {
					t.Fatalf("%s: %s is %v, want %v", when, series, got, n)
				}
			}
			return true
		})
	}
	connectAll()
	waitCounted("the connections are counted")
	if r.metric("sluice_rule_packets_total{shop,web,outbound,proxy}") == 0 {
		t.Error("the proxy's connections are not counted")
	}
	if _, err := b.Remove(network.Pod); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the pod is repaired", func() bool { return hasRules(t, b, network.Pod, rs) })
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	waitCounted("the packets from before the repair are still counted")
	connectAll()
	waitCounted("the packets from after the repair are added")
}

// sendInvalid sends a TCP packet without a checksum, which conntrack assigns to no connection.
func sendInvalid(t *testing.T, from *netns.NS, to netip.Addr) {
	t.Helper()
	err := from.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		segment := make([]byte, 20)
		binary.BigEndian.PutUint16(segment, 40000) // source port
		binary.BigEndian.PutUint16(segment[2:], 80)
		segment[12], segment[13] = 5<<4, 0x02 // 5 words, SYN
		return unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: to.As4()})
	})
	if err != nil {
		t.Fatal(err)
	}
}
