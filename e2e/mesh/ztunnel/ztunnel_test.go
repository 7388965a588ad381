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

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"istio.io/istio/pkg/hbone"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/mesh/client"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
	"github.com/sluice-mesh/sluice/e2e/mesh/ztunnel"
	agent "github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

const port = 8080

// anySource lets the kernel select the source address.
var anySource netip.Addr

// asClient is an environment variable with the address of an application. If it is set, the test
// binary runs an HBONE client for that address.
const asClient = "HBONE_TEST_TO"

func TestMain(m *testing.M) {
	if to := os.Getenv(asClient); to != "" {
		if err := hboneClient(netip.MustParseAddrPort(to)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if pod := os.Getenv(asSidecar); pod != "" {
		if err := sidecar(pod); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hboneClient sends a request with Istio's HBONE client, and prints the answer.
func hboneClient(to netip.AddrPort) error {
	dialer := hbone.NewDialer(hbone.Config{
		ProxyAddress: netip.AddrPortFrom(to.Addr(), rules.DefaultTunnelPort).String(),
	})
	conn, err := dialer.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	report, err := sendRequest(conn, to)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report.Answer)
}

// A testEnv contains the agent's server, a ztunnel of this package, and two namespaces with
// applications.
type testEnv struct {
	netnstest.Pair
	t      *testing.T
	server *agent.Server
}

// newTestEnv starts everything, and returns when the ztunnel is connected.
func newTestEnv(t *testing.T) *testEnv {
	env := &testEnv{Pair: netnstest.NewPair(t), t: t}
	env.server = serve(t, ztunnel.Options{
		Resolver: env.NeighborIP4.String() + ":53", Drain: time.Minute,
	})
	application(t, env.Pod, "pod")
	application(t, env.Neighbor, "neighbor")
	return env
}

// serve starts an agent's server and a ztunnel, and returns when the ztunnel is connected.
func serve(t *testing.T, o ztunnel.Options) *agent.Server {
	t.Helper()
	o.Socket = filepath.Join(t.TempDir(), "run", "ztunnel.sock")
	s := agent.New(zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), func(int) {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Serve(ctx, o.Socket) }()
	go func() { done <- ztunnel.Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	s.Restore(nil)
	rulestest.Eventually(t, "ztunnel is connected", func() bool { return len(s.State().Connections) > 0 })
	return s
}

// secondPod returns another pod, which is connected to the first one, and sets env.PodIP4 and
// env.PodIP6 to the first pod's addresses on that link. The neighbor cannot be a pod, because it
// accepts packets to all addresses.
func (env *testEnv) secondPod() (ns *netns.NS, ipv4, ipv6 netip.Addr) {
	env.t.Helper()
	ns = netnstest.New(env.t)
	ipv4, ipv6 = netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("fd00:99::2")
	connect(env.t, env.Pod, "second", ns, "eth0")
	ip(env.t, env.Pod, "address add 10.99.0.1/24 dev second",
		"address add fd00:99::1/64 dev second nodad", "link set second up")
	ip(env.t, ns, "address add 10.99.0.2/24 dev eth0", "address add fd00:99::2/64 dev eth0 nodad",
		"link set eth0 up")
	env.PodIP4, env.PodIP6 = netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd00:99::1")
	return ns, ipv4, ipv6
}

// application starts the application of a pod.
func application(t *testing.T, ns *netns.NS, pod string) {
	t.Helper()
	for _, network := range []string{"tcp4", "tcp6"} {
		var l net.Listener
		if err := ns.Do(func() (err error) {
			l, err = net.Listen(network, fmt.Sprintf(":%d", port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: server.Handler(pod, "app")}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
}

// addToMesh applies the rules of ambient mode in a pod, and adds the pod to the ztunnel.
func addToMesh(t *testing.T, s *agent.Server, backend compat.Backend, ns *netns.NS, pod string) {
	t.Helper()
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err == nil {
		_, err = backend.Apply(ns, rs, compat.EmptySnapshot())
	}
	if err == nil {
		err = s.Add(t.Context(), agent.Pod{
			UID: "uid-" + pod, Name: pod, Namespace: "default", Netns: ns,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// get sends a request from a namespace to the application at an address, and checks its path. If
// from is valid, it is the source address.
func (env *testEnv) get(ns *netns.NS, caller string, from, to netip.Addr, want path.Expected) {
	env.t.Helper()
	report, err := request(ns, from, netip.AddrPortFrom(to, port))
	report.Caller = caller
	if err == nil {
		err = report.Check(want)
	}
	if err != nil {
		env.t.Errorf("%s to %s: %v", caller, to, err)
	}
}

func request(ns *netns.NS, from netip.Addr, to netip.AddrPort) (path.Report, error) {
	conn, err := dial(ns, from, to)
	if err != nil {
		return path.Report{}, err
	}
	defer conn.Close()
	return sendRequest(conn, to)
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

// sendRequest sends a request over a connection.
func sendRequest(conn net.Conn, to netip.AddrPort) (path.Report, error) {
	report := path.Report{Local: path.AddrPort(conn.LocalAddr()), Remote: to}
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

// forEachBackend runs a test with nftables and with iptables-legacy.
func forEachBackend(t *testing.T, test func(*testing.T, compat.Backend)) {
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

// Traffic between two mesh pods is forwarded by ztunnel in both pods, in both directions and
// families.
func TestTrafficBetweenTwoMeshPods(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend compat.Backend) {
		env := newTestEnv(t)
		env.Neighbor, env.NeighborIP4, env.NeighborIP6 = env.secondPod()
		application(t, env.Neighbor, "neighbor")
		addToMesh(t, env.server, backend, env.Pod, "pod")
		addToMesh(t, env.server, backend, env.Neighbor, "neighbor")
		captured := path.Expected{Outbound: true, Inbound: true, Transparent: true}
		for range 2 { // the second tunnel uses the connection of the first
			env.get(env.Pod, "pod", anySource, env.NeighborIP4, captured)
			env.get(env.Pod, "pod", anySource, env.NeighborIP6, captured)
			env.get(env.Neighbor, "neighbor", anySource, env.PodIP4, captured)
			env.get(env.Neighbor, "neighbor", anySource, env.PodIP6, captured)
		}
		// A connection to the pod's own address is direct.
		env.get(env.Pod, "pod", anySource, env.PodIP4, path.Expected{})
	})
}

// Istio's HBONE client can use this ztunnel.
func TestIstioHBONEClient(t *testing.T) {
	env := newTestEnv(t)
	addToMesh(t, env.server, compat.Backends()[0], env.Pod, "pod")
	for _, to := range []netip.Addr{env.PodIP4, env.PodIP6} {
		command := exec.Command("/proc/self/exe")
		command.Env = append(os.Environ(), asClient+"="+netip.AddrPortFrom(to, port).String())
		var output []byte
		if err := env.Neighbor.Do(func() (err error) {
			output, err = command.Output()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var answer path.Answer
		for line := range bytes.Lines(output) { // other lines are logs of the library
			if bytes.HasPrefix(line, []byte("{")) {
				if err := json.Unmarshal(line, &answer); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(answer.Via) != 1 || answer.Via[0].Proxy != "pod" ||
			answer.Via[0].Direction != path.Inbound || answer.Via[0].Peer.Addr() != answer.Peer.Addr() {
			t.Errorf("answer %+v, want one inbound hop of pod; output: %s", answer, output)
		}
	}
}

// Traffic between a mesh pod and a host outside the mesh is forwarded by ztunnel only in the pod.
func TestTrafficBetweenMeshPodAndOtherHost(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend compat.Backend) {
		env := newTestEnv(t)
		env.get(env.Neighbor, "neighbor", anySource, env.PodIP4, path.Expected{})
		addToMesh(t, env.server, backend, env.Pod, "pod")
		for _, to := range []netip.Addr{env.NeighborIP4, env.NeighborIP6} {
			env.get(env.Pod, "pod", anySource, to, path.Expected{Outbound: true})
		}
		for _, to := range []netip.Addr{env.PodIP4, env.PodIP6} {
			env.get(env.Neighbor, "neighbor", anySource, to, path.Expected{Inbound: true, Transparent: true})
		}
		// Probes of the kubelet are not captured.
		env.get(env.Neighbor, "node", rules.DefaultProbeSourceIPv4(), env.PodIP4, path.Expected{})
		env.get(env.Neighbor, "node", rules.DefaultProbeSourceIPv6(), env.PodIP6, path.Expected{})
		env.mustForwardQueries()

		to := netip.AddrPortFrom(env.NeighborIP4, port)
		open, err := dial(env.Pod, anySource, to)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if _, err := sendRequest(open, to); err != nil { // forwarded by ztunnel
			t.Fatal(err)
		}
		if err := env.server.Remove(t.Context(), "uid-pod"); err != nil {
			t.Fatal(err)
		}
		// An open connection continues during the drain time.
		if _, err := sendRequest(open, to); err != nil {
			t.Errorf("open connection after the removal: %v", err)
		}
		// The rules remain. New connections are refused, because the listeners are closed.
		_, err = request(env.Pod, anySource, to)
		if err == nil {
			t.Error("new connection after the removal: no error, want an error")
		}
	})
}

// mustForwardQueries sends DNS queries from the pod, and fails the test unless ztunnel forwards
// them.
func (env *testEnv) mustForwardQueries() {
	env.t.Helper()
	ctx, cancel := context.WithCancel(env.t.Context())
	defer cancel()
	var l *name.Listener
	if err := env.Neighbor.Do(func() (err error) {
		l, err = name.Listen(ctx, net.ListenConfig{}, env.NeighborIP4.String()+":53")
		return err
	}); err != nil {
		env.t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- l.Serve(ctx, func(_ string, query *dns.Msg, peer netip.AddrPort) (*dns.Msg, error) {
			return name.Answer(query, "neighbor", peer), nil
		})
	}()
	for _, network := range []string{"udp", "tcp"} {
		lookup := client.Lookup{
			Name: "example.test.", Network: network, Resolver: "198.51.100.7:53", // not the resolver of ztunnel
		}
		var report name.Resolution
		err := env.Pod.Do(func() error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			report = lookup.Do(ctx)
			return nil
		})
		if err != nil || report.Proxy != "pod" || report.Server != "neighbor" {
			env.t.Errorf("lookup over %s: %+v, error %v, want the proxy pod and the server neighbor",
				network, report, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		env.t.Error(err)
	}
}
