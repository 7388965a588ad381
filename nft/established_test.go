package nft_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func install(t *testing.T, ns *netns.NS, r rules.Redirect) nft.Result {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	result, err := nft.Apply(ns, rules.MustCompile(r))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A flow is a long-lived connection. direct is the server that answers without capture, and
// captured the server that answers with capture.
type flow struct {
	name             string
	call             testbed.Call
	direct, captured testbed.Name
}

var flows = []flow{
	{
		"outbound IPv4",
		testbed.Call{
			Network: "tcp", Owner: testbed.ApplicationOwner,
			To: netip.MustParseAddrPort("10.9.9.9:80"),
		},
		testbed.Outside, testbed.Outbound,
	},
	{
		"outbound IPv6",
		testbed.Call{
			Network: "tcp", Owner: testbed.ApplicationOwner,
			To: netip.MustParseAddrPort("[2001:db8::9]:80"),
		},
		testbed.Outside, testbed.Outbound,
	},
	{
		"inbound IPv4",
		testbed.Call{
			From: testbed.FromNeighbor, Network: "tcp",
			To: netip.AddrPortFrom(testbed.PodIP4, 8080),
		},
		testbed.Application, testbed.Inbound,
	},
	{
		"inbound IPv6",
		testbed.Call{
			From: testbed.FromNeighbor, Network: "tcp",
			To: netip.AddrPortFrom(testbed.PodIP6, 8080),
		},
		testbed.Application, testbed.Inbound,
	},
}

// noAnswerTimeout is the timeout for an answer that is not expected.
const noAnswerTimeout = 3 * time.Second

// open opens the flows, and checks that the expected server answers on each connection. timeout is
// the timeout for further answers.
func open(
	t *testing.T, network *testbed.Network, timeout time.Duration, expected func(flow) testbed.Name,
) []*testbed.Conn {
	t.Helper()
	var conns []*testbed.Conn
	for _, f := range flows {
		call := f.call
		call.Timeout = callTimeout
		conn, err := network.Open(call)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if answer := conn.Ask(); answer.By != expected(f) {
			t.Fatalf("%s: new connection: %s, want an answer by %s", f.name, answer, expected(f))
		}
		conn.SetTimeout(timeout)
		conns = append(conns, conn)
	}
	return conns
}

func whenDirect(f flow) testbed.Name   { return f.direct }
func whenCaptured(f flow) testbed.Name { return f.captured }

func TestKeepEstablishedDoesNotCaptureOlderConnections(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			network := startNetwork(t, testbed.Options{}, mode, nil)
			older := open(t, network, callTimeout, whenDirect)

			r := sidecar(mode)
			r.KeepEstablished = true
			install(t, network.Pod, r)
			for round := range 3 {
				for i, f := range flows {
					if answer := older[i].Ask(); answer.By != f.direct {
						t.Errorf("%s, request %d after Apply: %s, want an answer by %s", f.name,
							round+1, answer, f.direct)
					}
				}
			}
			open(t, network, callTimeout, whenCaptured)
			if result := install(t, network.Pod, r); result.Outcome != nft.Unchanged ||
				result.EstablishedPackets < uint64(len(flows)) {
				t.Errorf("second Apply: %+v, want unchanged with at least %d packets of kept connections",
					result, len(flows))
			}
		})
	}
}

func TestWithoutKeepEstablishedNoOlderConnectionBypassesTheProxy(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			network := startNetwork(t, testbed.Options{}, mode, nil)
			older := open(t, network, noAnswerTimeout, whenDirect)
			install(t, network.Pod, sidecar(mode))
			for i, f := range flows {
				if answer := older[i].Ask(); answer.Outcome == testbed.Answered {
					t.Errorf("%s: %s after Apply, want no answer", f.name, answer)
				}
			}
		})
	}
}

func TestNoPayloadBypassesTheProxyAfterConntrackFlush(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			network := startNetwork(t, testbed.Options{}, mode, nil)
			install(t, network.Pod, sidecar(mode))
			payloadOutside := watchPayload(t, network.Neighbor, 80)
			conns := open(t, network, noAnswerTimeout, whenCaptured)
			for round := range 5 {
				flushConntrack(t, network.Pod)
				for i, f := range flows {
					if answer := conns[i].Ask(); answer.Outcome == testbed.Answered &&
						answer.By != f.captured {
						t.Errorf("%s, flush %d: %s, want no answer or one by %s", f.name, round+1,
							answer, f.captured)
					}
				}
			}
			if n := payloadOutside.Load(); n != 0 {
				t.Errorf("%d bytes of payload left the pod without passing the proxy, want 0", n)
			}
			// Check that the counter works: it must count the payload of a connection that is not
			// captured.
			uncaptured := testbed.Call{
				Network: "tcp", Owner: testbed.ProxyOwner,
				To: netip.MustParseAddrPort("10.9.9.9:80"), Timeout: callTimeout,
			}
			if answer, err := network.Dial(uncaptured); err != nil || answer.By != testbed.Outside {
				t.Fatalf("the proxy's own connection: %s, error %v, want an answer by %s", answer, err,
					testbed.Outside)
			}
			rulestest.Eventually(t, "the proxy's own payload is counted", func() bool {
				return payloadOutside.Load() > 0
			})
		})
	}
}

func flushConntrack(t *testing.T, ns *netns.NS) {
	t.Helper()
	err := ns.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		t.Fatal(err)
	}
}

// watchPayload counts the bytes of TCP payload for a destination port, in all packets that the
// interfaces of the namespace receive and send.
func watchPayload(t *testing.T, ns *netns.NS, port uint16) *atomic.Uint64 {
	t.Helper()
	allProtocols := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			int(allProtocols))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), "packets")
	var payload atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				return
			}
			payload.Add(payloadTo(buf[:n], port))
		}
	}()
	t.Cleanup(func() {
		socket.Close()
		<-done
	})
	return &payload
}

// payloadTo returns the number of bytes of TCP payload in an IP packet to the port. It returns 0
// for other packets.
func payloadTo(packet []byte, port uint16) uint64 {
	const tcpHeader = 20
	header, total, protocol := 40, len(packet), packet[6]
	if packet[0]>>4 == 4 {
		header = int(packet[0]&0xf) * 4
		total = int(binary.BigEndian.Uint16(packet[2:]))
		protocol = packet[9]
	}
	if protocol != unix.IPPROTO_TCP || len(packet) < header+tcpHeader ||
		binary.BigEndian.Uint16(packet[header+2:]) != port {
		return 0
	}
	return uint64(total - header - int(packet[header+12]>>4)*4)
}
