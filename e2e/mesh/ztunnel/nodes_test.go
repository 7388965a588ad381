package ztunnel_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/e2e/mesh/ztunnel"
	agent "github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// asSidecar is the environment variable that contains the name of a pod. If it is set, the test
// binary runs the sidecar of this pod.
const asSidecar = "SIDECAR_TEST_POD"

// sidecar runs a proxy until the end of standard input. The input also ends when the test's process
// ends.
func sidecar(pod string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return proxy.Run(ctx, proxy.Options{Name: pod})
}

// A node is a network namespace that routes between its pods and the other node.
type node struct {
	t      *testing.T
	ns     *netns.NS
	number int
	server *agent.Server
}

// A nodePod is a pod of a node.
type nodePod struct {
	name       string
	ns         *netns.NS
	ipv4, ipv6 netip.Addr
}

// addressesOf returns the addresses of pod n (1 to 9) of node i.
func addressesOf(i, n int) (ipv4, ipv6 netip.Addr) {
	return netip.MustParseAddr(fmt.Sprintf("10.%d.0.%d", i, n)),
		netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", i, n))
}

// newNodes returns two connected nodes. Each has an agent's server and a ztunnel that knows the
// addresses of the pod in ambient mode on the other node.
func newNodes(t *testing.T) (nodes [2]*node) {
	t.Helper()
	for i := range nodes {
		nodes[i] = &node{t: t, ns: netnstest.New(t), number: i + 1}
		// The node forwards packets, and has no rules that capture them.
		nodes[i].ip("link set lo up")
		for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := nodes[i].ns.Do(func() error {
				return os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0o644)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	connect(t, nodes[0].ns, "uplink", nodes[1].ns, "uplink")
	for i, n := range nodes {
		other := 2 - i
		n.ip(fmt.Sprintf("address add 192.168.9.%d/24 dev uplink", n.number),
			fmt.Sprintf("address add fd00:9::%d/64 dev uplink nodad", n.number), "link set uplink up",
			fmt.Sprintf("route add 10.%d.0.0/24 via 192.168.9.%d", other, other),
			fmt.Sprintf("route add fd00:%d::/64 via fd00:9::%d dev uplink", other, other))
		ipv4, ipv6 := addressesOf(other, 1) // the pod in ambient mode
		n.server = serve(t, ztunnel.Options{
			Mesh: []netip.Prefix{netip.PrefixFrom(ipv4, 32), netip.PrefixFrom(ipv6, 128)},
		})
	}
	return nodes
}

// connect connects two namespaces by a pair of interfaces.
func connect(t *testing.T, a *netns.NS, first string, b *netns.NS, second string) {
	t.Helper()
	h, err := netlink.NewHandleAt(a.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = first
	if err := h.LinkAdd(&netlink.Veth{
		LinkAttrs: attributes, PeerName: second, PeerNamespace: netlink.NsFd(b.FD()),
	}); err != nil {
		t.Fatal(err)
	}
}

// ip runs commands of ip(8) in a namespace.
func ip(t *testing.T, ns *netns.NS, commands ...string) {
	t.Helper()
	run(t, ns, strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

func (n *node) ip(commands ...string) {
	n.t.Helper()
	ip(n.t, n.ns, commands...)
}

// run runs a program in a namespace, and returns its output.
func run(t *testing.T, ns *netns.NS, input, program string, args ...string) string {
	t.Helper()
	c := exec.Command(netnstest.RequireBinary(t, program), args...)
	c.Stdin = strings.NewReader(input)
	var out []byte
	if err := ns.Do(func() (err error) {
		out, err = c.CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v: %s", c, err, out)
	}
	return string(out)
}

// pod creates a pod with an application.
func (n *node) pod(number int, name string) nodePod {
	n.t.Helper()
	p := nodePod{name: name, ns: netnstest.New(n.t)}
	p.ipv4, p.ipv6 = addressesOf(n.number, number)
	connect(n.t, n.ns, name, p.ns, "eth0")
	n.ip("address add 169.254.1.1/32 dev "+name, fmt.Sprintf("address add fe80::1/64 dev %s nodad", name),
		fmt.Sprintf("link set %s up", name),
		fmt.Sprintf("route add %s/32 dev %s", p.ipv4, name), fmt.Sprintf("route add %s/128 dev %s", p.ipv6, name))
	ip(n.t, p.ns, "link set lo up", fmt.Sprintf("address add %s/32 dev eth0", p.ipv4),
		fmt.Sprintf("address add %s/128 dev eth0 nodad", p.ipv6), "link set eth0 up",
		"route add 169.254.1.1 dev eth0 scope link", "route add default via 169.254.1.1 dev eth0",
		"route add default via fe80::1 dev eth0")
	application(n.t, p.ns, name)
	return p
}

// ambientPod creates a pod in ambient mode.
func (n *node) ambientPod(backend compat.Backend, number int, name string) nodePod {
	n.t.Helper()
	p := n.pod(number, name)
	addToMesh(n.t, n.server, backend, p.ns, name)
	return p
}

// sidecarPod creates a pod with a sidecar.
func (n *node) sidecarPod(backend compat.Backend, number int, name string) nodePod {
	n.t.Helper()
	netnstest.RequireIDs(n.t, rules.DefaultProxyID, rules.DefaultProxyID)
	p := n.pod(number, name)
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6 = true, true, true
	if _, err := backend.Apply(p.ns, rules.MustCompile(r), compat.EmptySnapshot()); err != nil {
		n.t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env, c.Dir = append(os.Environ(), asSidecar+"="+name), "/"
	c.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: rules.DefaultProxyID, Gid: rules.DefaultProxyID},
	}
	input, err := c.StdinPipe()
	if err == nil {
		err = p.ns.Do(c.Start)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = input.Close()
		_ = c.Wait()
	})
	for _, port := range []uint16{rules.DefaultProxyPort, rules.DefaultInboundCapturePort} {
		rulestest.EventuallySucceeds(n.t, "the sidecar listens", func() error {
			conn, err := dial(p.ns, anySource, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	return p
}

// onlyHBONE drops TCP packets between the pods in ambient mode unless they belong to an HBONE
// connection, and counts the packets to the HBONE port.
const onlyHBONE = `table inet watch {
	chain forward {
		type filter hook forward priority 0
		ip saddr { 10.1.0.1, 10.2.0.1 } ip daddr { 10.1.0.1, 10.2.0.1 } jump ambient
		ip6 saddr { fd00:1::1, fd00:2::1 } ip6 daddr { fd00:1::1, fd00:2::1 } jump ambient
	}
	chain ambient {
		tcp dport 15008 counter accept
		tcp sport 15008 accept
		meta l4proto tcp drop
	}
}`

// TestPodsOnTwoNodes checks that pods on two nodes, in ambient mode and with sidecars, reach each
// other over IPv4 and IPv6. Between pods in ambient mode, the nodes forward only HBONE.
func TestPodsOnTwoNodes(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend compat.Backend) {
		nodes := newNodes(t)
		var ambient, sidecars [2]nodePod
		for i, n := range nodes {
			ambient[i] = n.ambientPod(backend, 1, fmt.Sprintf("ambient-%d", n.number))
			sidecars[i] = n.sidecarPod(backend, 2, fmt.Sprintf("sidecar-%d", n.number))
			run(t, n.ns, onlyHBONE, "nft", "-f", "-")
		}
		hbone := path.Expected{Outbound: true, Inbound: true, Transparent: true}
		sidecar := path.Expected{Outbound: true, Inbound: true}
		for _, call := range []struct {
			from, to nodePod
			want     path.Expected
		}{
			{ambient[0], ambient[1], hbone},
			{ambient[1], ambient[0], hbone},
			{ambient[0], sidecars[1], sidecar},
			{sidecars[0], ambient[1], hbone},
			{sidecars[0], sidecars[1], sidecar},
			{ambient[0], sidecars[0], sidecar},
			{sidecars[1], ambient[1], hbone},
		} {
			for _, to := range []netip.Addr{call.to.ipv4, call.to.ipv6} {
				call.want.Server = call.to.name
				report, err := request(call.from.ns, anySource, netip.AddrPortFrom(to, port))
				report.Caller = call.from.name
				if err == nil {
					err = report.Check(call.want)
				}
				if err != nil {
					t.Errorf("%s to %s (%s): %v", call.from.name, call.to.name, to, err)
				}
			}
		}
		for _, n := range nodes {
			out := run(t, n.ns, "", "nft", "list", "chain", "inet", "watch", "ambient")
			if strings.Contains(out, "packets 0 ") {
				t.Errorf("node %d has forwarded no HBONE: %s", n.number, out)
			}
		}
	})
}
