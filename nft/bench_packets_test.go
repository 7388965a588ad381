package nft

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// BenchmarkConnect compares the time to connect through the rules of Sluice, through the
// iptables-legacy rules of istio-init, and without rules. The rules exclude no prefixes, then 1,000
// IPv4 prefixes; Sluice's rules also exclude 1,000 IPv6 prefixes. They redirect the connection to a
// listener in the same pod. Without rules, the connection is made to this listener directly.
func BenchmarkConnect(b *testing.B) {
	netnstest.RequireRoot(b)
	restore := netnstest.RequireBinary(b, "iptables-legacy-restore")
	for _, n := range []int{0, 1000} {
		b.Run(fmt.Sprintf("prefixes=%d", n), func(b *testing.B) {
			r := sidecar(n)
			outside := unix.SockaddrInet4{Addr: [4]byte{10, 9, 9, 9}, Port: 80}
			direct := unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: rules.DefaultProxyPort}
			candidates := []*connectingPod{
				newConnectingPod(b, "legacy", outside, func(ns *netns.NS) {
					loadLegacy(b, ns, restore, r)
				}),
				newConnectingPod(b, "sluice", outside, func(ns *netns.NS) {
					mustApply(b, ns, rules.MustCompile(r), Created)
				}),
				newConnectingPod(b, "none", direct, func(*netns.NS) {}),
			}
			for range b.N {
				for _, c := range candidates {
					c.round(b)
				}
			}
			for _, c := range candidates {
				b.ReportMetric(c.median(), c.name+"-µs")
			}
			b.ReportMetric(candidates[1].median()/candidates[0].median(), "sluice/legacy")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCounters compares the time to connect with and without counters in the rules. It uses
// one namespace and changes its rules between rounds, because the times of two namespaces with
// equal rules differ by more than the cost of the counters.
func BenchmarkCounters(b *testing.B) {
	netnstest.RequireRoot(b)
	outside := unix.SockaddrInet4{Addr: [4]byte{10, 9, 9, 9}, Port: 80}
	r := sidecar(1000)
	rulesets := [2]rules.Ruleset{rules.MustCompile(r)}
	r.Counters = true
	rulesets[1] = rules.MustCompile(r)
	pod := newConnectingPod(b, "pod", outside, func(ns *netns.NS) {
		mustApply(b, ns, rulesets[1], Created)
	})
	var times [2][]time.Duration
	for i := range 2 * b.N {
		which := (i + i/2) % 2 // 0, 1, 1, 0, 0, 1, 1, 0, ...
		if _, err := Apply(pod.ns, rulesets[which]); err != nil {
			b.Fatal(err)
		}
		pod.times = nil
		pod.round(b)
		times[which] = append(times[which], pod.times...)
	}
	var medians [2]float64
	for i := range times {
		pod.times = times[i]
		medians[i] = pod.median()
	}
	b.ReportMetric(medians[0], "without-µs")
	b.ReportMetric(medians[1], "with-µs")
	b.ReportMetric(medians[1]/medians[0], "with/without")
	b.ReportMetric(0, "ns/op")
}

// A connectingPod is a pod in which the benchmark makes connections.
type connectingPod struct {
	name  string
	ns    *netns.NS
	to    unix.SockaddrInet4
	times []time.Duration // for each round, the average time of a connection
}

// newConnectingPod returns a new pod with the rules that install creates, and with a listener at
// the port of the proxy.
func newConnectingPod(
	b *testing.B, name string, to unix.SockaddrInet4, install func(*netns.NS),
) *connectingPod {
	c := &connectingPod{name: name, ns: netnstest.NewPair(b).Pod, to: to}
	install(c.ns)
	var listener int
	err := c.ns.Do(func() (err error) {
		listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(listener,
			&unix.SockaddrInet4{Port: rules.DefaultProxyPort}); err != nil {
			return err
		}
		return unix.Listen(listener, 1024)
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fd, _, err := unix.Accept(listener)
			if err != nil {
				return
			}
			unix.Close(fd)
		}
	}()
	b.Cleanup(func() {
		if err := unix.Shutdown(listener, unix.SHUT_RDWR); err != nil {
			b.Error(err)
		}
		<-done
		unix.Close(listener)
	})
	return c
}

// round makes connections one after another, and records their average time.
func (c *connectingPod) round(b *testing.B) {
	const connections = 500
	err := c.ns.Do(func() error {
		runtime.Gosched()
		start := time.Now()
		for range connections {
			if err := connect(&c.to); err != nil {
				return err
			}
		}
		c.times = append(c.times, time.Since(start)/connections)
		return nil
	})
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
}

func connect(to *unix.SockaddrInet4) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Close with a reset: the connection does not enter TIME_WAIT, which would occupy a port.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER,
		&unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	return unix.Connect(fd, to)
}

// median returns the median of the times in microseconds.
func (c *connectingPod) median() float64 {
	slices.Sort(c.times)
	return float64(c.times[len(c.times)/2]) / float64(time.Microsecond)
}

// loadLegacy loads the IPv4 rules of istio-init for a pod with DNS capture and the excluded IPv4
// prefixes of r. restore is the path of iptables-legacy-restore.
func loadLegacy(b *testing.B, ns *netns.NS, restore string, r rules.Redirect) {
	text := strings.Replace(legacyRules, "EXCLUDED\n", legacyExclusions(r.OutboundExcludeCIDRs), 1)
	err := ns.Do(func() error {
		cmd := exec.Command(restore)
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

func legacyExclusions(prefixes []netip.Prefix) string {
	lines := new(strings.Builder)
	for _, p := range prefixes {
		if p.Addr().Is4() {
			fmt.Fprintf(lines, "-A ISTIO_OUTPUT -d %s -j RETURN\n", p)
		}
	}
	return lines.String()
}

const legacyRules = `*raw
:ISTIO_INBOUND -
:ISTIO_OUTPUT_DNS -
-A PREROUTING -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT_DNS
-A ISTIO_INBOUND -p udp --sport 53 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --gid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner --gid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -j CT --zone 2
COMMIT
*nat
:ISTIO_INBOUND -
:ISTIO_IN_REDIRECT -
:ISTIO_OUTPUT -
:ISTIO_OUTPUT_DNS -
:ISTIO_REDIRECT -
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -p tcp ! --dport 53 -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -p tcp ! --dport 53 -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
EXCLUDED
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_OUTPUT_DNS -p tcp --dport 53 -j REDIRECT --to-ports 15053
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -j REDIRECT --to-ports 15053
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`
