package nft_test

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// Parameters and calls are generated from the same few values, so that they often coincide.
var (
	somePorts = []uint16{
		1, 53, 80, 443, 3306, 8080, 9000, 15001, 15006, 15008, 15020, 15021, 15053, 15090, 16001,
		16006, 20000,
	}
	someIDs   = []uint32{0, 5, 1000, 1337, 1338, 2000, 2003, 65533}
	someMarks = []uint32{0, 0, 0, 0, 7, 1337, 1338, 0x80000001}

	podAddrs     = addrs("10.244.1.5", "10.0.2.1", "fd00:10:244:1::5", "fd00:10:0:2::1")
	loopAddrs    = addrs("127.0.0.1", "127.0.0.2", "127.0.0.6", "127.0.0.53", "127.64.0.1", "::1")
	outsideAddrs = addrs("10.9.9.9", "10.9.9.10", "10.9.8.8", "10.96.0.10", "172.16.5.5", "192.0.2.1",
		"223.255.255.255", "10.244.1.1",
		"2001:db8::9", "2001:db8::10", "2001:db8:8::8", "fd00:96::10", "64:ff9b::a09:909",
		"fd00:10:244:1::1")
	machineAddrs = addrs("10.0.2.2", "fd00:10:0:2::2")

	someInterfaces = []rules.InterfaceName{
		{Name: secondInterface},
		{Name: "vnet", Prefix: true},
		{Name: "net1"},
		{Name: secondInterface},
		{Name: "net", Prefix: true},
		{Name: "eth0"},
		{Name: "lo"},
		{Name: "e", Prefix: true},
	}
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// randomRedirect returns valid parameters for a mode. The ports of the proxy are distinct, because
// each port has its own listener.
func randomRedirect(t *rapid.T, mode rules.Mode) rules.Redirect {
	r := rules.DefaultRedirect()
	r.Mode = mode
	r.ProxyPort = rapid.SampledFrom([]uint16{15001, 16001}).Draw(t, "proxy port")
	r.InboundCapturePort = rapid.SampledFrom([]uint16{15006, 16006}).Draw(t, "capture port")
	r.TunnelPort = rapid.SampledFrom([]uint16{15008, 53, 8080}).Draw(t, "tunnel port")
	r.ProxyUIDs = rapid.SliceOfN(anyIDRange(), 1, 3).Draw(t, "proxy users")
	r.ProxyGIDs = rapid.SliceOfN(anyIDRange(), 1, 3).Draw(t, "proxy groups")
	r.TProxyMark = rapid.SampledFrom([]uint32{1337, 7, 0x80000001}).Draw(t, "mark")
	r.TProxyRouteTable = rapid.SampledFrom([]uint32{133, 1000}).Draw(t, "table")

	if r.InboundPorts.All = oftenTrue(t, "all inbound"); !r.InboundPorts.All {
		r.InboundPorts.Ports = somePortRanges(t, "inbound ports")
	}
	r.InboundExcludePorts = somePortRanges(t, "excluded inbound ports")
	if r.OutboundCIDRs.All = oftenTrue(t, "all outbound"); !r.OutboundCIDRs.All {
		r.OutboundCIDRs.Prefixes = somePrefixes(t, "destinations")
	}
	r.OutboundExcludeCIDRs = somePrefixes(t, "excluded destinations")
	r.OutboundPorts = somePortRanges(t, "outbound ports")
	r.OutboundExcludePorts = somePortRanges(t, "excluded outbound ports")
	if r.OwnerGroups.All = oftenTrue(t, "all groups"); !r.OwnerGroups.All {
		r.OwnerGroups.IDs = rapid.SliceOfN(anyIDRange(), 0, 3).Draw(t, "groups")
	}
	r.OwnerGroupsExclude = rapid.SliceOfN(anyIDRange(), 0, 2).Draw(t, "excluded groups")
	r.ExcludeInterfaces = someOf(t, "excluded interfaces", someInterfaces, 2)
	r.RerouteInterfaces = someOf(t, "rerouted interfaces", someInterfaces, 2)
	r.LoopbackCIDR = rapid.SampledFrom([]netip.Prefix{
		rules.DefaultLoopbackCIDR(), netip.MustParsePrefix("127.0.0.1/8"),
		netip.MustParsePrefix("127.0.0.2/31"),
	}).Draw(t, "loopback")
	r.DNS.Capture = oftenTrue(t, "DNS")
	r.DNS.All = rapid.Bool().Draw(t, "all DNS")
	r.DNS.Servers = someOf(t, "servers", slices.Concat(outsideAddrs, loopAddrs), 3)
	r.DropInvalid = rapid.Bool().Draw(t, "drop invalid")
	r.IPv6 = oftenTrue(t, "IPv6")
	r.KeepEstablished = rapid.Bool().Draw(t, "keep established")
	r.Counters = rapid.Bool().Draw(t, "counters")
	for _, d := range rules.Deviations {
		if rapid.Bool().Draw(t, "without "+string(d.ID)) {
			r.Without = append(r.Without, d.ID)
		}
	}
	if err := r.Validate(); err != nil {
		t.Fatalf("the generated parameters are invalid: %v", err)
	}
	return r
}

// anyCall generates calls that are answered if there are no rules.
func anyCall(r rules.Redirect) *rapid.Generator[testbed.Call] {
	return rapid.Custom(func(t *rapid.T) testbed.Call {
		c := testbed.Call{Network: rapid.SampledFrom([]string{
			"tcp", "tcp", "udp",
		}).Draw(t, "network")}
		var to []netip.Addr
		switch c.From = rapid.SampledFrom([]testbed.Caller{
			testbed.FromPod, testbed.FromPod, testbed.FromPod, testbed.FromNeighbor,
			testbed.FromMachine,
		}).Draw(t, "from"); c.From {
		case testbed.FromNeighbor:
			to = podAddrs
		case testbed.FromMachine:
			to = slices.Concat(podAddrs, outsideAddrs)
		default:
			c.Owner.UID = rapid.SampledFrom(someIDs).Draw(t, "uid")
			c.Owner.GID = rapid.SampledFrom(someIDs).Draw(t, "gid")
			c.Mark = rapid.SampledFrom(someMarks).Draw(t, "mark")
			to = slices.Concat(podAddrs, loopAddrs, outsideAddrs, machineAddrs)
		}
		addr := rapid.SampledFrom(to).Draw(t, "to")
		c.To = netip.AddrPortFrom(addr, rapid.SampledFrom(somePorts).Draw(t, "port"))
		switch local := slices.Contains(podAddrs, addr) || slices.Contains(loopAddrs, addr); {
		case c.From != testbed.FromPod:
		case local && c.Network == "tcp" &&
			rapid.IntRange(0, 3).Draw(t, "from the client's address") == 0 && canCallAsClient(r, addr):
			callAsClient(t, &c, r)
		case local:
			setRandomSource(t, &c, r)
		case c.Network == "udp" && rapid.Bool().Draw(t, "same port"):
			c.Local = netip.AddrPortFrom(unspecified(addr), 5000)
			fallthrough
		default:
			if c.Mark == r.TProxyMark && r.Mode == rules.ModeTProxy {
				// With this mark, a policy route would deliver the call to the application at an
				// address that the pod does not have. The application could not reply.
				c.Mark = 0
			}
		}
		return c
	})
}

// canCallAsClient reports whether a proxy in the pod can call an address from the address of a
// client outside the pod. The proxy receives the replies only if the rules mark them and a policy
// route delivers them to the pod.
func canCallAsClient(r rules.Redirect, to netip.Addr) bool {
	captures := r.InboundPorts.All || len(r.InboundPorts.Ports) > 0
	excluded := slices.ContainsFunc(r.ExcludeInterfaces, func(n rules.InterfaceName) bool {
		// The call passes lo. A reply without a mark leaves by eth0.
		return n.Contains("lo") || n.Contains("eth0")
	})
	return r.Mode == rules.ModeTProxy && captures && !excluded && (r.IPv6 ||
		to.Is4()) && slices.Contains(podAddrs, to)
}

// callAsClient changes c into a call of the proxy from the address of a random client.
func callAsClient(t *rapid.T, c *testbed.Call, r rules.Redirect) {
	clients := slices.DeleteFunc(slices.Clone(outsideAddrs), func(a netip.Addr) bool {
		return a.Is4() != c.To.Addr().Is4()
	})
	c.Local = netip.AddrPortFrom(rapid.SampledFrom(clients).Draw(t, "client"), 0)
	c.Transparent, c.Mark = true, r.TProxyMark
}

// unspecified returns the unspecified address of the family of a.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// setRandomSource sets the source address of about half of the calls within the pod.
func setRandomSource(t *rapid.T, c *testbed.Call, r rules.Redirect) {
	if !rapid.Bool().Draw(t, "own address") {
		return
	}
	own := addrs("127.0.0.1", "127.0.0.6", "10.244.1.5")
	if c.To.Addr().Is6() {
		own = addrs("::1", "fd00:10:244:1::5")
		if r.IPv6 {
			own = append(own, rules.PassthroughIPv6())
		}
	}
	c.Local = netip.AddrPortFrom(rapid.SampledFrom(own).Draw(t, "source"), 0)
}

// oftenTrue returns true with a probability of 75 %.
func oftenTrue(t *rapid.T, label string) bool {
	return rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, label)
}

// someOf returns at most n of the values, and none with a probability of 75 %.
func someOf[T any](t *rapid.T, label string, values []T, n int) []T {
	if oftenTrue(t, "no "+label) {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(values), 1, n).Draw(t, label)
}

// somePortRanges returns one to three ranges of ports, or none in half of the cases.
func somePortRanges(t *rapid.T, label string) []rules.PortRange {
	if rapid.Bool().Draw(t, "no "+label) {
		return nil
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rules.PortRange {
		first := rapid.SampledFrom(somePorts).Draw(t, "port")
		more := rapid.SampledFrom([]uint16{0, 0, 0, 1, 5000}).Draw(t, "more")
		return rules.PortRange{First: first, Last: first + more}
	}), 1, 3).Draw(t, label)
}

// somePrefixes returns prefixes that contain addresses of calls. Some of the IPv4 prefixes are
// IPv4-mapped.
func somePrefixes(t *rapid.T, label string) []netip.Prefix {
	if rapid.Bool().Draw(t, "no "+label) {
		return nil
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := rapid.SampledFrom(slices.Concat(outsideAddrs, loopAddrs, podAddrs,
			machineAddrs)).Draw(t, "address")
		hostBits := rapid.SampledFrom([]int{0, 0, 0, 1, 8, 16, 23}).Draw(t, "host bits")
		p := netip.PrefixFrom(a, a.BitLen()-hostBits)
		if a.Is4() && rapid.IntRange(0, 4).Draw(t, "mapped") == 0 {
			p = netip.PrefixFrom(netip.AddrFrom16(a.As16()), p.Bits()+96)
		}
		return p
	}), 1, 4).Draw(t, label)
}

// anyIDRange generates ranges of at most six ids.
func anyIDRange() *rapid.Generator[rules.IDRange] {
	return rapid.Custom(func(t *rapid.T) rules.IDRange {
		first := rapid.SampledFrom(someIDs).Draw(t, "id")
		return rules.IDRange{
			First: first,
			Last:  first + rapid.SampledFrom([]uint32{0, 0, 0, 0, 1, 5}).Draw(t, "more"),
		}
	})
}
