package observe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// floodEnv makes the test binary flood the port in its value.
const floodEnv = "SLUICE_TEST_FLOOD"

const (
	// flooded is the number of connections after which the flood reports its start; it continues
	// until it is killed.
	flooded = 5000
	// held is the number of connections that the flood keeps open.
	held = 4000
)

// flood opens connections at the maximum rate. On every other connection it begins a request that
// it never completes.
func flood(port string) {
	var made atomic.Int64
	var group sync.WaitGroup
	const workers = 8
	for range workers {
		group.Go(func() {
			var open [held / workers]net.Conn
			for i := 0; ; i = (i + 1) % len(open) {
				if open[i] != nil {
					_ = open[i].Close()
				}
				open[i], _ = net.DialTimeout("tcp", port, 5*time.Second)
				if open[i] == nil {
					continue
				}
				if i%2 == 0 {
					_, _ = io.WriteString(open[i], "GET /readyz HTTP/1.1\r\nX-Slow: ")
				}
				if made.Add(1) == flooded {
					fmt.Println("flooded")
				}
			}
		})
	}
	group.Wait()
}

// A network contains the network namespaces of an agent's pod and of its three neighbors, each on
// its own link: the node, from which the kubelet sends probes, a pod of Prometheus, and a pod that
// floods the agent.
type network struct {
	t                                 *testing.T
	agent, node, prometheus, attacker *netns.NS
}

const agentPort = "8000"

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t, netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)}
	for i, peer := range []*netns.NS{n.node, n.prometheus, n.attacker} {
		n.withNetlink(n.agent, func(h *netlink.Handle) error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprint("eth", i)
			return h.LinkAdd(&netlink.Veth{
				LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.FD()),
			})
		})
		n.addAddress(n.agent, fmt.Sprint("eth", i), fmt.Sprintf("10.9.%d.2/24", i))
		n.addAddress(peer, "eth0", fmt.Sprintf("10.9.%d.1/24", i))
		n.waitUsable(n.agent, fmt.Sprint("eth", i), fmt.Sprintf("10.9.%d.2", i))
		n.waitUsable(peer, "eth0", fmt.Sprintf("10.9.%d.1", i))
	}
	return n
}

func (n *network) withNetlink(ns *netns.NS, do func(*netlink.Handle) error) {
	n.t.Helper()
	err := ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return do(h)
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *network) addAddress(ns *netns.NS, link, address string) {
	n.t.Helper()
	n.withNetlink(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(link)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return errors.Join(h.AddrAdd(l, a), h.LinkSetUp(l))
	})
}

func (n *network) waitUsable(ns *netns.NS, link, address string) {
	n.t.Helper()
	if err := testbed.WaitUsable(ns, link, netip.MustParseAddr(address)); err != nil {
		n.t.Fatal(err)
	}
}

// askTimeout is longer than the timeout of the chart's probes, because the kernel repeats a SYN
// that it drops under load after 1, 3 and 7 s.
const askTimeout = 30 * time.Second

// ask sends a request from a neighbor to an address of the agent on a new connection.
func (n *network) ask(from *netns.NS, agentAddress string) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = from.Do(func() (err error) {
				conn, err = net.DialTimeout(network, address, askTimeout)
				return err
			})
			return conn, err
		},
	}
	client := http.Client{Transport: transport, Timeout: askTimeout}
	answer, err := client.Get("http://" + agentAddress + ":" + agentPort +
		"/") //nolint:noctx // the client has a time limit
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && string(text) != "hello" {
		err = fmt.Errorf("status code %d, text %q, want hello", answer.StatusCode, text)
	}
	return err
}

// attack runs the flood until it has opened its connections and ready returns true.
func (n *network) attack(ready func() bool) {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), self)
	cmd.Env = append(os.Environ(), floodEnv+"=10.9.2.2:"+agentPort)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.attacker.Do(cmd.Start); err != nil {
		n.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "flooded\n" {
		n.t.Errorf("the flood printed %q, %v; want flooded", line, err)
	}
	for !ready() {
		runtime.Gosched()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestFloodDoesNotBlockProbes checks that a pod that opens thousands of connections gets no more
// than its limit. During the flood, probes and scrapes are answered, and the agent needs few
// descriptors and little memory.
func TestFloodDoesNotBlockProbes(t *testing.T) {
	netnstest.RequireRoot(t)
	n := newNetwork(t)
	var l net.Listener
	err := n.agent.Do(func() (err error) {
		l, err = observe.Listen(t.Context(), 8000)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refused, reports atomic.Int64
	port := observe.Port{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		}),
		FromNode: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.9.0.1") },
		Refused:  func() { refused.Add(1) },
		Report: func(r observe.Refusals) {
			reports.Add(1)
			if r.Address != netip.MustParseAddr("10.9.2.1") || r.Count == 0 {
				t.Errorf("reported %+v, want refusals of 10.9.2.1", r)
			}
		},
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := port.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	// The bound of the memory is for the default of GOGC, which the environment may change.
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	runtime.GC()
	beforeFDs, beforeMemory := netnstest.Descriptors(t), memory()
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	var askers sync.WaitGroup
	var probes, scrapes atomic.Int64
	var maxFDs, maxMemory int // used by the goroutine that probes
	askers.Go(func() {
		// Probes are less frequent than the rate limit of an address of the node.
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for asking.Err() == nil {
			if err := n.ask(n.node, "10.9.0.2"); err != nil {
				t.Errorf("probe %d: %v", probes.Load(), err)
				return
			}
			maxFDs, maxMemory = max(maxFDs, netnstest.Descriptors(t)), max(maxMemory, memory())
			probes.Add(1)
			<-tick.C
		}
	})
	askers.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for asking.Err() == nil {
			if err := n.ask(n.prometheus, "10.9.1.2"); err != nil {
				t.Errorf("scrape %d: %v", scrapes.Load(), err)
				return
			}
			scrapes.Add(1)
			<-tick.C
		}
	})
	n.attack(func() bool { return probes.Load() >= 10 && scrapes.Load() >= 5 || t.Failed() })
	stopAsking()
	askers.Wait()
	cancel()
	group.Wait()
	t.Logf("%d probes, %d scrapes, %d refused; descriptors %d before, %d at most; memory %d KiB before, %d KiB at most",
		probes.Load(), scrapes.Load(), refused.Load(), beforeFDs, maxFDs, beforeMemory>>10,
		maxMemory>>10)
	if most := beforeFDs + 64; maxFDs > most {
		t.Errorf("%d descriptors, want at most %d", maxFDs, most)
	}
	if most := beforeMemory + 16<<20; maxMemory > most {
		t.Errorf("%d KiB of memory, want at most %d KiB", maxMemory>>10, most>>10)
	}
	if refused.Load() < flooded/2 {
		t.Errorf("%d of %d connections were refused, want at least half", refused.Load(), flooded)
	}
	if n := reports.Load(); n < 1 || n > 3 {
		t.Errorf("%d reports, want 1 to 3 (one per minute)", n)
	}
}

// memory returns the number of bytes in use for the heap and the stacks.
func memory() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
