package istio

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An AmbientConfiguration is a configuration of istio-cni for a pod in ambient mode.
type AmbientConfiguration struct {
	IPv6, DNS bool // settings of the node
	// PodDNS is the value of the annotation ambient.istio.io/dns-capture: "true", "false", or empty
	// to use the setting of the node.
	PodDNS string
	// BypassInbound is the value of the annotation ambient.istio.io/bypass-inbound-capture. If it
	// is true, inbound connections are not captured.
	BypassInbound bool
	// Interfaces is the value of the annotation istio.io/reroute-virtual-interfaces: connections
	// that enter the pod by these interfaces are captured like outbound connections of the pod.
	Interfaces []string
	// IPv4Source and IPv6Source are the source addresses of probes.
	IPv4Source, IPv6Source netip.Addr
}

// String returns the configuration on one line.
func (c AmbientConfiguration) String() string { return strings.Join(c.environment(), " ") }

// environment returns the configuration as environment variables of the program istio-ambient.
func (c AmbientConfiguration) environment() []string {
	return []string{
		fmt.Sprintf("AMBIENT_IPV6=%t", c.IPv6), fmt.Sprintf("AMBIENT_DNS_CAPTURE=%t", c.DNS),
		"DNS_CAPTURE=" + c.PodDNS, fmt.Sprintf("BYPASS_INBOUND_CAPTURE=%t", c.BypassInbound),
		"REROUTE_VIRTUAL_INTERFACES=" + strings.Join(c.Interfaces, ","),
		"HOST_PROBE_SNAT_IP=" + c.IPv4Source.String(),
		"HOST_PROBE_SNAT_IPV6=" + c.IPv6Source.String(),
	}
}

// HasInterfacePattern reports whether one of the interfaces is a name pattern, such as tap+.
// istio-cni's nftables backend rejects patterns.
func (c AmbientConfiguration) HasInterfacePattern() bool {
	return strings.Contains(strings.Join(c.Interfaces, ","), "+")
}

// Ambient returns the configuration as Sluice's parameters.
func (c AmbientConfiguration) Ambient() (rules.Ambient, error) {
	a := rules.DefaultAmbient()
	a.IPv6, a.DNS, a.BypassInboundCapture = c.IPv6, c.DNS, c.BypassInbound
	if c.PodDNS != "" {
		a.DNS = c.PodDNS == "true"
	}
	a.ProbeSourceIPv4, a.ProbeSourceIPv6 = c.IPv4Source, c.IPv6Source
	var err error
	a.RerouteInterfaces, err = rules.ParseInterfaces(strings.Join(c.Interfaces, ","))
	return a, err
}

// RunAmbient runs the program istio-ambient in the namespace, with its iptables or nftables
// backend.
func (p Program) RunAmbient(ns *netns.NS, c AmbientConfiguration, nftables bool) (Result, error) {
	cmd := exec.Command(string(p))
	cmd.Env = append(environment(""), c.environment()...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("NATIVE_NFTABLES=%t", nftables))
	return run(ns, cmd)
}

// Source addresses of probes in random configurations.
var (
	ipv4Sources = []netip.Addr{
		netip.MustParseAddr("169.254.7.127"), netip.MustParseAddr("169.254.9.9"),
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.7"),
	}
	ipv6Sources = []netip.Addr{
		netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
		netip.MustParseAddr("fd99::9"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("fe80::1"),
	}
)

// pick returns a random element.
func pick[T any](r *rand.Rand, elements []T) T { return elements[r.IntN(len(elements))] }

// distinct returns n different values that next generates.
func distinct[T fmt.Stringer](n int, next func() T) []T {
	seen := map[string]bool{}
	var values []T
	for len(values) < n {
		if v := next(); !seen[v.String()] {
			seen[v.String()] = true
			values = append(values, v)
		}
	}
	return values
}

// RandomAmbient returns n different random configurations. Equal seeds yield equal configurations.
func RandomAmbient(seed uint64, n int) []AmbientConfiguration {
	r := rand.New(rand.NewPCG(seed, 0))
	return distinct(n, func() AmbientConfiguration {
		c := AmbientConfiguration{
			IPv6: r.IntN(3) > 0, DNS: r.IntN(2) > 0,
			PodDNS:        pick(r, []string{"", "", "true", "false"}),
			BypassInbound: r.IntN(3) == 0,
			IPv4Source:    pick(r, ipv4Sources), IPv6Source: pick(r, ipv6Sources),
		}
		for range r.IntN(4) {
			c.Interfaces = append(c.Interfaces, pick(r, []string{
				"virt0", "virt1", "eth0.100", "br-1a2b", "net_1", "tap-0123456789a", "virt+",
			}))
		}
		return c
	})
}
