package ztunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	"istio.io/istio/pkg/hbone"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/mesh/client"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
	"github.com/sluice-mesh/sluice/e2e/mesh/ztunnel"
	agent "github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

const port = 8080

// anySource is the source address that the kernel selects.
var anySource netip.Addr

// asClient is the environment variable that makes the test's executable a client of HBONE: it
// contains the address of the application.
const asClient = "HBONE_TEST_TO"

func TestMain(m *testing.M) {
	if to := os.Getenv(asClient); to != "" {
		if err := hboneClient(netip.MustParseAddrPort(to)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hboneClient sends a request through Istio's client of HBONE, and prints the answer.
func hboneClient(to netip.AddrPort) error {
	dialer := hbone.NewDialer(hbone.Config{
		ProxyAddress: netip.AddrPortFrom(to.Addr(), rules.DefaultTunnelPort).String(),
	})
	conn, err := dialer.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	report, err := ask(conn, to)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report.Answer)
}

// A world is an agent's server, a stand-in, and two namespaces with applications.
type world struct {
	netnstest.Pair
	t      *testing.T
	server *agent.Server
}

func newWorld(t *testing.T) *world {
	w := &world{Pair: netnstest.NewPair(t), t: t}
	socket := filepath.Join(t.TempDir(), "run", "ztunnel.sock")
	w.server = agent.New(zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), agent.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- w.server.Serve(ctx, socket) }()
	o := ztunnel.Options{
		Socket: socket, Resolver: w.NeighbourIP4.String() + ":53", Drain: time.Minute,
	}
	go func() { done <- ztunnel.Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	w.server.Restore(nil)
	w.application(w.Pod, "pod")
	w.application(w.Neighbour, "neighbour")
	for start := time.Now(); len(w.server.State().Connections) == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("the stand-in does not connect")
		}
	}
	return w
}

// second returns another pod, which is connected with the first one. The neighbour is not used as
// one, because it is a router that accepts packets to all addresses.
func (w *world) second() (ns *netns.NS, four, six netip.Addr) {
	w.t.Helper()
	ns = netnstest.New(w.t)
	four, six = netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("fd00:99::2")
	handle := func(ns *netns.NS) *netlink.Handle {
		h, err := netlink.NewHandleAt(ns.Handle())
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(h.Close)
		return h
	}
	pod := handle(w.Pod)
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "second"
	if err := pod.LinkAdd(&netlink.Veth{
		LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.FD()),
	}); err != nil {
		w.t.Fatal(err)
	}
	for _, end := range []struct {
		*netlink.Handle
		name      string
		addresses []string
	}{
		{pod, "second", []string{"10.99.0.1/24", "fd00:99::1/64"}},
		{handle(ns), "eth0", []string{four.String() + "/24", six.String() + "/64"}},
	} {
		link, err := end.LinkByName(end.name)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, text := range end.addresses {
			address, err := netlink.ParseAddr(text)
			if err == nil {
				address.Flags = unix.IFA_F_NODAD
				err = end.AddrAdd(link, address)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		if err := end.LinkSetUp(link); err != nil {
			w.t.Fatal(err)
		}
	}
	w.PodIP4, w.PodIP6 = netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd00:99::1")
	return ns, four, six
}

// application starts the application of a pod.
func (w *world) application(ns *netns.NS, pod string) {
	w.t.Helper()
	for network, address := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "[::]"} {
		var l net.Listener
		err := ns.Do(func() (err error) {
			l, err = net.Listen(network, fmt.Sprintf("%s:%d", address, port))
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
		s := &http.Server{Handler: server.Handler(pod, "app")}
		go func() { _ = s.Serve(l) }()
		w.t.Cleanup(func() { _ = s.Close() })
	}
}

// add puts a pod into ambient mode.
func (w *world) add(backend compat.Backend, ns *netns.NS, pod string) {
	w.t.Helper()
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := backend.Apply(ns, rs, compat.EmptySnapshot()); err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Add(w.t.Context(), agent.Pod{
		UID: "uid-" + pod, Name: pod, Namespace: "default", Netns: ns,
	}); err != nil {
		w.t.Fatal(err)
	}
}

// get requests the application at an address from a namespace, and checks the path. If from is
// valid, it is the source address.
func (w *world) get(ns *netns.NS, caller string, from, to netip.Addr, way path.Expected) {
	w.t.Helper()
	report, err := request(ns, from, netip.AddrPortFrom(to, port))
	report.Caller = caller
	if err == nil {
		err = report.Check(way)
	}
	if err != nil {
		w.t.Errorf("%s to %s: %v", caller, to, err)
	}
}

func request(ns *netns.NS, from netip.Addr, to netip.AddrPort) (path.Report, error) {
	conn, err := dial(ns, from, to)
	if err != nil {
		return path.Report{}, err
	}
	defer conn.Close()
	return ask(conn, to)
}

func dial(ns *netns.NS, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	err = ns.Do(func() error {
		conn, err = dialer.Dial("tcp", to.String())
		return err
	})
	return conn, err
}

// ask sends a request over a connection.
func ask(conn net.Conn, to netip.AddrPort) (path.Report, error) {
	report := path.Report{Local: proxy.AddrPort(conn.LocalAddr()), Remote: to}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", to); err != nil {
		return report, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return report, err
	}
	defer response.Body.Close()
	return report, json.NewDecoder(response.Body).Decode(&report.Answer)
}

func each(t *testing.T, test func(*testing.T, compat.Backend)) {
	for _, b := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(b), func(t *testing.T) {
			backend, err := compat.Choose(b)
			if err != nil {
				t.Fatal(err)
			}
			test(t, backend)
		})
	}
}

// Traffic between two pods passes ztunnel in both, in both directions and families.
func TestPodsTalkThroughBothZtunnels(t *testing.T) {
	each(t, func(t *testing.T, backend compat.Backend) {
		w := newWorld(t)
		w.Neighbour, w.NeighbourIP4, w.NeighbourIP6 = w.second()
		w.application(w.Neighbour, "neighbour")
		w.add(backend, w.Pod, "pod")
		w.add(backend, w.Neighbour, "neighbour")
		captured := path.Expected{Outbound: true, Inbound: true, Transparent: true}
		for range 2 { // the second tunnel uses the connection of the first
			w.get(w.Pod, "pod", anySource, w.NeighbourIP4, captured)
			w.get(w.Pod, "pod", anySource, w.NeighbourIP6, captured)
			w.get(w.Neighbour, "neighbour", anySource, w.PodIP4, captured)
			w.get(w.Neighbour, "neighbour", anySource, w.PodIP6, captured)
		}
		// To its own address a pod talks directly.
		w.get(w.Pod, "pod", anySource, w.PodIP4, path.Expected{})
	})
}

// The HBONE of the stand-in is Istio's.
func TestIstiosClientOfHBONE(t *testing.T) {
	w := newWorld(t)
	w.add(compat.Backends()[0], w.Pod, "pod")
	for _, to := range []netip.Addr{w.PodIP4, w.PodIP6} {
		command := exec.Command("/proc/self/exe")
		command.Env = append(os.Environ(), asClient+"="+netip.AddrPortFrom(to, port).String())
		var output []byte
		if err := w.Neighbour.Do(func() (err error) {
			output, err = command.Output()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var answer path.Answer
		for line := range bytes.Lines(output) { // the log of the library has other lines
			if bytes.HasPrefix(line, []byte("{")) {
				if err := json.Unmarshal(line, &answer); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(answer.Via) != 1 || answer.Via[0].Proxy != "pod" ||
			answer.Via[0].Direction != path.Inbound || answer.Via[0].Peer.Addr() != answer.Peer.Addr() {
			t.Errorf("answer %+v of %s", answer, output)
		}
	}
}

// The other side is not in the mesh.
func TestOnePodInTheMesh(t *testing.T) {
	each(t, func(t *testing.T, backend compat.Backend) {
		w := newWorld(t)
		w.get(w.Neighbour, "neighbour", anySource, w.PodIP4, path.Expected{})
		w.add(backend, w.Pod, "pod")
		for _, to := range []netip.Addr{w.NeighbourIP4, w.NeighbourIP6} {
			w.get(w.Pod, "pod", anySource, to, path.Expected{Outbound: true})
		}
		for _, to := range []netip.Addr{w.PodIP4, w.PodIP6} {
			w.get(w.Neighbour, "neighbour", anySource, to, path.Expected{Inbound: true, Transparent: true})
		}
		// A probe of the kubelet is not captured.
		w.get(w.Neighbour, "node", rules.DefaultProbeSourceIPv4(), w.PodIP4, path.Expected{})
		w.get(w.Neighbour, "node", rules.DefaultProbeSourceIPv6(), w.PodIP6, path.Expected{})
		w.resolve()

		to := netip.AddrPortFrom(w.NeighbourIP4, port)
		open, err := dial(w.Pod, anySource, to)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if _, err := ask(open, to); err != nil { // it is carried
			t.Fatal(err)
		}
		if err := w.server.Remove(t.Context(), "uid-pod"); err != nil {
			t.Fatal(err)
		}
		// An open connection is drained.
		if _, err := ask(open, to); err != nil {
			t.Errorf("a connection that was open: %v", err)
		}
		// The rules remain: the listeners that are gone refuse the connection.
		_, err = request(w.Pod, anySource, to)
		if err == nil {
			t.Error("a connection was carried after the removal")
		}
	})
}

// resolve sends DNS queries from the pod, which ztunnel forwards.
func (w *world) resolve() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var l *name.Listener
	if err := w.Neighbour.Do(func() (err error) {
		l, err = name.Listen(ctx, net.ListenConfig{}, w.NeighbourIP4.String()+":53")
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- l.Serve(ctx, func(_ string, query []byte, peer netip.AddrPort) ([]byte, error) {
			return name.Answer(query, "neighbour", peer)
		})
	}()
	for _, network := range []string{"udp", "tcp"} {
		lookup := client.Lookup{
			Name: "example.test.", Network: network, Resolver: "198.51.100.7:53", // another one
		}
		var report name.Resolution
		err := w.Pod.Do(func() error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			report = lookup.Ask(ctx)
			return nil
		})
		if err != nil || report.Proxy != "pod" || report.Server != "neighbour" {
			w.t.Errorf("lookup by %s: %+v, %v", network, report, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}
