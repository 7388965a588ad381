package nft

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// anyRedirect generates valid parameters. Half of the ports, ids, prefixes and interfaces are from
// short lists, and often coincide: a tunnel port equals the DNS port, or an interface is both
// rerouted and excluded. The other half is from the whole range.
func anyRedirect() *rapid.Generator[rules.Redirect] {
	return rapid.Custom(func(t *rapid.T) rules.Redirect {
		r := rules.DefaultRedirect()
		r.Mode = rapid.SampledFrom([]rules.Mode{
			rules.ModeRedirect, rules.ModeTProxy,
		}).Draw(t, "mode")
		setRandomPorts(t, &r)
		setRandomOwners(t, &r)
		setRandomDestinations(t, &r)
		r.ExcludeInterfaces = rapid.SliceOfN(anyInterface(), 0, 4).Draw(t, "excluded interfaces")
		r.RerouteInterfaces = rapid.SliceOfN(anyInterface(), 0, 3).Draw(t, "rerouted interfaces")
		r.TProxyMark = rapid.SampledFrom([]uint32{1337, 1, 1339, 1<<32 - 1}).Draw(t, "mark")
		r.TProxyRouteTable = rapid.SampledFrom([]uint32{133, 1, 256, 1<<31 - 1}).Draw(t, "table")
		r.IPv6 = rapid.Bool().Draw(t, "IPv6")
		r.DropInvalid = rapid.Bool().Draw(t, "drop invalid")
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
	})
}

func setRandomPorts(t *rapid.T, r *rules.Redirect) {
	single := rapid.OneOf(rapid.SampledFrom([]uint16{15008, 53, 80, 443}), rapid.Uint16Min(1))
	r.ProxyPort, r.InboundCapturePort = single.Draw(t, "proxy port"), single.Draw(t, "capture port")
	r.TunnelPort = single.Draw(t, "tunnel port")
	ports := rapid.SliceOfN(anyPorts(), 0, 5)
	if r.InboundPorts.All = rapid.Bool().Draw(t, "all inbound"); !r.InboundPorts.All {
		r.InboundPorts.Ports = ports.Draw(t, "inbound ports")
	}
	r.InboundExcludePorts = ports.Draw(t, "excluded inbound ports")
	r.OutboundPorts = ports.Draw(t, "outbound ports")
	r.OutboundExcludePorts = ports.Draw(t, "excluded outbound ports")
}

func setRandomOwners(t *rapid.T, r *rules.Redirect) {
	r.ProxyUIDs = rapid.SliceOfN(anyIDs(), 1, 4).Draw(t, "proxy users")
	r.ProxyGIDs = rapid.SliceOfN(anyIDs(), 1, 4).Draw(t, "proxy groups")
	if r.OwnerGroups.All = rapid.Bool().Draw(t, "all groups"); !r.OwnerGroups.All {
		r.OwnerGroups.IDs = rapid.SliceOfN(anyIDs(), 0, 4).Draw(t, "groups")
	}
	r.OwnerGroupsExclude = rapid.SliceOfN(anyIDs(), 0, 4).Draw(t, "excluded groups")
}

func setRandomDestinations(t *rapid.T, r *rules.Redirect) {
	if r.OutboundCIDRs.All = rapid.Bool().Draw(t, "all outbound"); !r.OutboundCIDRs.All {
		r.OutboundCIDRs.Prefixes = rapid.SliceOfN(anyPrefix(), 0, 8).Draw(t, "destinations")
	}
	r.OutboundExcludeCIDRs = rapid.SliceOfN(anyPrefix(), 0, 8).Draw(t, "excluded destinations")
	r.LoopbackCIDR = rapid.SampledFrom([]netip.Prefix{
		rules.DefaultLoopbackCIDR(), netip.MustParsePrefix("127.0.0.1/8"),
		netip.MustParsePrefix("127.64.0.0/11"),
	}).Draw(t, "loopback")
	r.DNS.Capture, r.DNS.All = rapid.Bool().Draw(t, "DNS"), rapid.Bool().Draw(t, "all DNS")
	r.DNS.Servers = rapid.SliceOfN(rapid.Map(anyPrefix(), func(p netip.Prefix) netip.Addr {
		return p.Addr()
	}), 0, 4).Draw(t, "servers")
}

func anyPorts() *rapid.Generator[rules.PortRange] {
	return rapid.OneOf(
		rapid.SampledFrom([]rules.PortRange{
			{First: 0, Last: 0},
			{First: 53, Last: 53},
			{First: 80, Last: 80},
			{First: 443, Last: 443},
			{First: 80, Last: 8080},
			{First: 0, Last: 65535},
			{First: 65535, Last: 65535},
			{First: 8081, Last: 8090},
			{First: 0, Last: 79},
			{First: 81, Last: 81},
		}),
		anyRange(rapid.Uint16()))
}

// anyIDs generates ranges of valid ids: 1<<32-1 is not an id.
func anyIDs() *rapid.Generator[rules.IDRange] {
	return rapid.OneOf(
		rapid.SampledFrom([]rules.IDRange{
			{First: 0, Last: 0},
			{First: 1337, Last: 1337},
			{First: 1338, Last: 1338},
			{First: 1337, Last: 1339},
			{First: 1340, Last: 5000},
			{First: 255, Last: 256},
			{First: 1<<32 - 2, Last: 1<<32 - 2},
			{First: 1 << 24, Last: 1<<32 - 2},
		}),
		anyRange(rapid.Uint32Max(1<<32-2)))
}

func anyRange[T uint16 | uint32](number *rapid.Generator[T]) *rapid.Generator[rules.Range[T]] {
	return rapid.Custom(func(t *rapid.T) rules.Range[T] {
		ends := []T{number.Draw(t, "first"), number.Draw(t, "last")}
		slices.Sort(ends)
		return rules.Range[T]{First: ends[0], Last: ends[1]}
	})
}

// anyPrefix generates prefixes of both families, which may have host bits. Half of the prefixes are
// from a list of adjacent prefixes, prefixes at the ends of the address space, and IPv4-mapped
// prefixes.
func anyPrefix() *rapid.Generator[netip.Prefix] {
	var few []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/0", "0.0.0.0/32", "10.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.0/25",
		"10.0.2.0/31", "10.1.2.3/16",
		"127.0.0.1/32", "127.0.0.2/8", "128.0.0.0/1", "255.0.0.0/8", "255.255.255.255/32",
		"10.96.0.10/32",
		"::/0", "::/128", "::1/128", "fd00::/8", "fd00::/64", "fd00:0:0:1::/64",
		"fd00:10:96::a/128", "8000::/1", "ff00::/8",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "::ffff:10.0.0.0/104", "::ffff:10.0.3.0/120",
		"::ffff:0.0.0.0/96",
		"::ffff:0.0.0.0/90",
	} {
		few = append(few, netip.MustParsePrefix(text))
	}
	return rapid.OneOf(rapid.SampledFrom(few), rapid.Custom(func(t *rapid.T) netip.Prefix {
		length := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
		addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), length,
			length).Draw(t, "address"))
		return netip.PrefixFrom(addr, rapid.IntRange(0, 8*length).Draw(t, "bits"))
	}))
}

// anyInterface generates names and name patterns. A pattern has at most 14 characters before the
// "*", because nft does not support longer patterns.
func anyInterface() *rapid.Generator[rules.InterfaceName] {
	few := rapid.SampledFrom([]rules.InterfaceName{
		{Name: "eth0"},
		{Name: "eth1"},
		{Name: "eth", Prefix: true},
		{Name: "eth"},
		{Name: "lo"},
		{Name: "net1"},
		{Name: "k6t-eth0"},
		{Name: "fifteen-letters"},
	})
	return rapid.OneOf(few, rapid.Custom(func(t *rapid.T) rules.InterfaceName {
		return rules.InterfaceName{
			Name:   rapid.StringMatching(`[a-zA-Z0-9_.@-]{1,13}[a-z0-9]`).Draw(t, "name"),
			Prefix: rapid.Bool().Draw(t, "prefix"),
		}
	}))
}
