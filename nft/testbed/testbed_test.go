package testbed_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout ends the wait for an expected answer.
const timeout = time.Minute

// newNetwork returns a network with a proxy and an application.
func newNetwork(t *testing.T, o testbed.Options, p testbed.ProxyOptions) *testbed.Network {
	t.Helper()
	netnstest.RequireIDs(t, 1337, 1337)
	n, err := testbed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(n.StartProxy(p),
		n.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	return n
}

// call returns a Call to an address such as "10.9.9.9:80".
func call(from testbed.Caller, network, to string) testbed.Call {
	return testbed.Call{
		From: from, Network: network, To: netip.MustParseAddrPort(to), Timeout: timeout,
	}
}

func TestWithoutRulesNothingIsRedirected(t *testing.T) {
	n := newNetwork(t, testbed.Options{
		Interface: "vnet0",
	}, testbed.ProxyOptions{Owner: testbed.ProxyOwner, Transparent: true})
	for _, tc := range []struct {
		from    testbed.Caller
		network string
		to      string
		want    testbed.Name
	}{
		{testbed.FromPod, "tcp", "10.9.9.9:80", testbed.Outside},
		{testbed.FromPod, "tcp", "[2001:db8::9]:80", testbed.Outside},
		{testbed.FromPod, "udp", "10.9.9.9:53", testbed.Outside},
		{testbed.FromPod, "udp", "[2001:db8::9]:53", testbed.Outside},
		{testbed.FromPod, "tcp", "10.244.1.1:53", testbed.Outside},
		{testbed.FromPod, "tcp", "127.0.0.1:8080", testbed.Application},
		{testbed.FromPod, "tcp", "127.0.0.2:8080", testbed.Application},
		{testbed.FromPod, "udp", "127.0.0.1:8080", testbed.Application},
		{testbed.FromPod, "tcp", "[::1]:8080", testbed.Application},
		{testbed.FromPod, "udp", "[::1]:8080", testbed.Application},
		{testbed.FromPod, "tcp", "10.244.1.5:8080", testbed.Application},
		{testbed.FromPod, "tcp", "10.0.2.2:8080", testbed.Machine},
		{testbed.FromPod, "udp", "[fd00:10:0:2::2]:8080", testbed.Machine},
		{testbed.FromPod, "tcp", "10.244.1.5:15001", testbed.Outbound},
		{testbed.FromPod, "tcp", "[fd00:10:244:1::5]:15053", testbed.DNS},
		{testbed.FromPod, "udp", "[fd00:10:244:1::5]:15053", testbed.DNS},
		{testbed.FromPod, "udp", "127.0.0.1:15053", testbed.DNS},
		{testbed.FromPod, "udp", "127.0.0.1:15001", testbed.Application},
		{testbed.FromNeighbor, "tcp", "10.244.1.5:8080", testbed.Application},
		{testbed.FromNeighbor, "tcp", "[fd00:10:244:1::5]:8080", testbed.Application},
		{testbed.FromNeighbor, "udp", "[fd00:10:244:1::5]:8080", testbed.Application},
		{testbed.FromNeighbor, "tcp", "10.244.1.5:15006", testbed.Inbound},
		{testbed.FromNeighbor, "tcp", "10.244.1.5:15008", testbed.Tunnel},
		{testbed.FromNeighbor, "tcp", "10.244.1.5:15020", testbed.Agent},
		{testbed.FromNeighbor, "tcp", "[fd00:10:244:1::5]:15021", testbed.Health},
		{testbed.FromNeighbor, "tcp", "10.244.1.5:15090", testbed.Metrics},
		{testbed.FromNeighbor, "udp", "10.244.1.5:15053", testbed.DNS},
		{testbed.FromMachine, "tcp", "10.9.9.9:80", testbed.Outside},
		{testbed.FromMachine, "udp", "[2001:db8::9]:80", testbed.Outside},
		{testbed.FromMachine, "tcp", "10.0.2.1:80", testbed.Application},
		{testbed.FromMachine, "tcp", "[fd00:10:244:1::5]:80", testbed.Application},
	} {
		c := call(tc.from, tc.network, tc.to)
		got, err := n.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.By != tc.want || got.To != c.To || got.Local != c.To || got.Peer != got.Source {
			t.Errorf("%s: %v, received at %s from %s, sent from %s; want %s at %s", c, got,
				got.Local, got.Peer, got.Source, tc.want, c.To)
		}
		if want, _ := n.Predict(new(rules.Ruleset), c, got.Source); !got.Agrees(want) {
			t.Errorf("%s: %v, predicted %v", c, got, want)
		}
		if p := n.Packet(new(rules.Ruleset), c,
			netip.AddrPort{}); p.Source.Addr() != got.Source.Addr() {
			t.Errorf("%s: source %s, predicted %s", c, got.Source, p.Source)
		}
	}
}

func TestCallComesFromItsLocalAddress(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	for _, tc := range []struct{ network, local, to string }{
		{"tcp", "127.0.0.6:0", "10.244.1.5:80"},
		{"tcp", "10.244.1.5:7777", "10.9.9.9:80"},
		{"tcp", "10.244.1.5:7777", "10.9.9.9:80"}, // again: the reset has left no TIME_WAIT
		{"udp", "[fd00:10:244:1::5]:7777", "[2001:db8::1]:53"},
		{"udp", "[fd00:10:244:1::5]:7777", "[2001:db8::1]:53"},
	} {
		c := call(testbed.FromPod, tc.network, tc.to)
		c.Local = netip.MustParseAddrPort(tc.local)
		got, err := n.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.Peer.Addr() != c.Local.Addr() || c.Local.Port() != 0 && got.Peer != c.Local ||
			got.Source != got.Peer {
			t.Errorf("%s: sent from %s, received from %s, want %s", c, got.Source, got.Peer,
				c.Local)
		}
	}
}

func TestOutcomesOfUnansweredCalls(t *testing.T) {
	netnstest.RequireRoot(t)
	n, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, tc := range []struct {
		name, network, to string
		want              testbed.Outcome
	}{
		{"a pod without an application", "tcp", "10.244.1.5:80", testbed.Refused},
		{"a pod without an application", "udp", "[fd00:10:244:1::5]:80", testbed.Refused},
		{"a pod without an application", "udp", "127.0.0.1:80", testbed.Refused},
		{"an unused address", "tcp", "10.244.1.77:80", testbed.Silent},
		{"an unused address", "udp", "[fd00:10:244:1::77]:80", testbed.Silent},
		{"an unreachable address", "tcp", "255.255.255.255:80", testbed.Failed},
	} {
		c := call(testbed.FromPod, tc.network, tc.to)
		if tc.want == testbed.Silent {
			c.Timeout = 20 * time.Millisecond
		}
		got, err := n.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.Outcome != tc.want || got.Err == nil {
			t.Errorf("%s: %s: %v (outcome %d, error %v), want outcome %d with an error", tc.name, c,
				got, got.Outcome, got.Err, tc.want)
		}
	}
	if _, err := n.Dial(call(testbed.FromMachine, "tcp", "10.9.9.9:80")); err == nil {
		t.Error("a call from a missing machine succeeded, want an error")
	}
	if _, err := n.Dial(call(testbed.FromPod, "sctp", "10.9.9.9:80")); err == nil {
		t.Error("a call over sctp succeeded, want an error")
	}
}

func TestEveryRequestOfACallIsAnswered(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	for _, network := range []string{"tcp", "udp"} {
		conn, err := n.Open(call(testbed.FromPod, network, "10.9.9.9:80"))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got := conn.Ask(); got.By != testbed.Outside {
				t.Errorf("%s: %v, want an answer of %s", network, got, testbed.Outside)
			}
		}
		conn.Close()
	}
}

// TestProxyDoesNotForwardToItself makes a direct call to the outbound listener.
func TestProxyDoesNotForwardToItself(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{
		Owner: testbed.ProxyOwner, Forward: true,
	})
	got, err := n.Dial(call(testbed.FromPod, "tcp", "127.0.0.1:15001"))
	if err != nil || got.By != testbed.Outbound || len(got.Upstream) > 0 {
		t.Errorf("answer %v, error %v, want an answer of the outbound listener only", got, err)
	}
}

func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for port := range 20 {
				for _, network := range []string{"tcp", "udp"} {
					to := fmt.Sprintf("10.9.9.%d:%d", i, 1000+port)
					if got, err := n.Dial(call(testbed.FromPod, network, to)); err != nil ||
						got.To.String() != to {
						t.Errorf("%s %s: %v, error %v, want an answer for %s", network, to, got,
							err, to)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestStartProxyRejectsASecondProxyAndUsedPorts(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	if err := n.StartProxy(testbed.ProxyOptions{}); err == nil {
		t.Error("a second proxy was started, want an error")
	}
	n.StopProxy()
	if got, err := n.Dial(call(testbed.FromPod, "udp", "127.0.0.1:15053")); err != nil ||
		got.By != testbed.Application {
		t.Errorf("answer %v, error %v, want the application on the released port", got, err)
	}
	err := n.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("error %v, want EADDRINUSE, because the application listens on port 15053", err)
	}
}

// TestStoppedProxyReleasesItsPorts stops the proxy while copies of its descriptors are open, as
// they are in a child process before execve.
func TestStoppedProxyReleasesItsPorts(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			defer unix.Close(c)
		}
	}
	n.StopProxy()
	got, err := n.Dial(call(testbed.FromPod, "tcp", "127.0.0.1:15001"))
	if err != nil || got.By != testbed.Application {
		t.Errorf("answer %v, error %v, want the application on the released port", got, err)
	}
}

func TestClosedNetworkRejectsCallsAndServers(t *testing.T) {
	n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	if _, err := n.Dial(call(testbed.FromPod, "tcp", "10.9.9.9:80")); !errors.Is(err,
		os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
	if n.StartProxy(testbed.ProxyOptions{}) == nil ||
		n.StartApplication(testbed.ApplicationOwner) == nil {
		t.Error("a closed network started a server, want an error")
	}
}

func TestCloseReleasesAllDescriptors(t *testing.T) {
	use := func(t *testing.T) {
		n := newNetwork(t, testbed.Options{
			Interface: "vnet0",
		}, testbed.ProxyOptions{Owner: testbed.ProxyOwner, Forward: true})
		for _, to := range []string{"10.9.9.9:80", "127.0.0.1:80", "127.0.0.1:15001"} {
			conn, err := n.Open(call(testbed.FromPod, "tcp", to))
			if err != nil {
				t.Fatal(err)
			}
			conn.Ask()
			t.Cleanup(conn.Close) // runs before the network is closed
		}
	}
	t.Run("warm up the runtime", use)
	before := netnstest.Descriptors(t)
	for range 5 {
		t.Run("network", use)
	}
	// A descriptor that is in use is not closed before its last use ends.
	rulestest.Eventually(t, fmt.Sprintf("%d open descriptors", before), func() bool {
		return netnstest.Descriptors(t) <= before
	})
}

func BenchmarkDial(b *testing.B) {
	netnstest.RequireRoot(b)
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer network.Close()
	c := call(testbed.FromPod, "tcp", "10.9.9.9:80")
	c.Owner = testbed.ApplicationOwner
	for b.Loop() {
		if a, err := network.Dial(c); err != nil || a.Outcome != testbed.Answered {
			b.Fatalf("call %s: answer %s, error %v, want an answer", c, a, err)
		}
	}
}
