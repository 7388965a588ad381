package validation

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// ordinaryInputs returns the inputs of a plan for a dual-stack pod and a process of root on the
// pod's node.
func ordinaryInputs() planInputs {
	return planInputs{
		self: rules.Owner{}, mayRunAs: func(rules.Owner) bool { return true },
		route: func(to netip.Addr) (netip.Addr, string, error) {
			switch {
			case to.IsLoopback() || to == rules.PassthroughIPv6():
				return loopbackOf(rules.FamilyOf(to)), lo, nil
			case to.Is4():
				return netip.MustParseAddr("10.244.1.5"), "eth0", nil
			}
			return netip.MustParseAddr("fd00::5"), "eth0", nil
		},
		device:            func(netip.Addr) string { return "eth0" },
		mayUseTransparent: true,
		isOutside:         true,
		outsideSource: func(a netip.Addr) netip.Addr {
			if a.Is4() {
				return netip.MustParseAddr("10.244.1.1")
			}
			return netip.MustParseAddr("fd00::1")
		},
	}
}

var podIPs = []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00::5")}

// planned returns the probe with the name.
func planned(t *testing.T, o Options, s planInputs, name string) probe {
	t.Helper()
	o.Port, o.PodIPs = DefaultPort, podIPs
	probes, _ := plan(o, rules.MustCompile(o.Redirect), s)
	i := slices.IndexFunc(probes, func(p probe) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no probe %q", name)
	}
	return probes[i]
}

// The parameters determine the destination, the owner and the expected result of a probe.
func TestPlanFollowsTheParameters(t *testing.T) {
	redirect := func(change func(*rules.Redirect)) rules.Redirect {
		r := typical(rules.ModeRedirect)
		change(&r)
		return r
	}
	prefixes := func(text string) []netip.Prefix {
		list, err := rules.ParsePrefixes(text)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	// A name describes the parameters and, after a colon, the address, port or owner that the probe
	// uses because of them.
	for name, row := range map[string]struct {
		probe                       string
		redirect                    rules.Redirect
		to, owner, expected, reason string
	}{
		"all destinations are included: an unused address": {
			"outbound, IPv4", redirect(func(*rules.Redirect) {}),
			"198.51.100.1:15002", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"the first documentation prefixes are excluded: the next one": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OutboundExcludeCIDRs = prefixes("198.51.100.0/24")
			}),
			"203.0.113.1:15002", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"half of the addresses are excluded: a private address of the other half": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OutboundExcludeCIDRs = prefixes("128.0.0.0/1")
			}),
			"10.255.255.254:15002", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"a prefix is included: an address in it": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("10.96.0.0/12")}
			}),
			"10.111.255.254:15002", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"an IPv4-mapped prefix is included: an IPv4 address": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("::ffff:10.96.0.0/108")}
			}),
			"10.111.255.254:15002", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"the included prefix has no address of the family": {
			"outbound, IPv6", redirect(func(r *rules.Redirect) {
				r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("10.96.0.0/12")}
			}),
			"[2001:db8::1]:15002", "", "arrives at",
			"the parameters capture no outbound connection",
		},
		"a port is included": {
			"outbound, IPv6", redirect(func(r *rules.Redirect) {
				r.OutboundCIDRs, r.OutboundPorts = rules.PrefixSelection{},
					rules.Singles[uint16](27017)
			}),
			"[2001:db8::1]:27017", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"the probe's port is excluded: another port": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OutboundExcludePorts = rules.Singles[uint16](15002, 80)
			}),
			"198.51.100.1:443", "uid 0 gid 0", "redirected to port 15001", "",
		},
		"only a group is captured: a member": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OwnerGroups = rules.GroupSelection{IDs: rules.Singles[uint32](3003)}
			}),
			"198.51.100.1:15002", "uid 1000 gid 3003", "redirected to port 15001", "",
		},
		"root's group is excluded: another group": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.OwnerGroupsExclude = rules.Singles[uint32](0, 1000)
			}),
			"198.51.100.1:15002", "uid 1000 gid 1001", "redirected to port 15001", "",
		},
		"the interface is excluded": {
			"outbound, IPv4", redirect(func(r *rules.Redirect) {
				r.ExcludeInterfaces = []rules.InterfaceName{{Name: "eth0"}}
			}),
			"198.51.100.1:15002", "", "arrives at", "the parameters capture no outbound connection",
		},
		"a list of inbound ports": {
			"inbound, IPv4", redirect(func(r *rules.Redirect) {
				r.InboundPorts = rules.PortSelection{Ports: rules.Singles[uint16](7070)}
			}),
			"10.244.1.5:7070", "", "redirected to port 15006", "",
		},
		"no inbound port": {
			"inbound, IPv6", redirect(func(r *rules.Redirect) {
				r.InboundPorts = rules.PortSelection{}
			}),
			"[fd00::5]:15002", "", "arrives at", "the parameters capture no inbound connection",
		},
		"a nameserver": {
			"DNS over UDP, IPv4", redirect(func(r *rules.Redirect) {
				r.DNS = rules.DNS{
					Capture: true, Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
				}
			}),
			"10.96.0.10:53", "uid 0 gid 0",
			"redirected to port 15053, and answered with the source address 10.96.0.10:53", "",
		},
		"a nameserver on lo": {
			"DNS over TCP, IPv4", redirect(func(r *rules.Redirect) {
				r.DNS = rules.DNS{
					Capture: true, Servers: []netip.Addr{netip.MustParseAddr("127.0.0.53")},
				}
			}),
			"127.0.0.53:53", "dev lo uid 0 gid 0", "redirected to port 15053", "",
		},
		"DNS is excluded by its port": {
			"DNS over TCP, IPv6", redirect(func(r *rules.Redirect) {
				r.OutboundExcludePorts = rules.Singles[uint16](53)
			}),
			"[2001:db8::1]:53", "", "arrives at", "the parameters capture no DNS query",
		},
		"127.0.0.6 is loopback": {
			"the proxy calls 127.0.0.6", redirect(func(r *rules.Redirect) {
				r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8")
			}),
			"127.0.0.6:15002", "uid 1337 gid 1337",
			"arrives at 127.0.0.6:15002 itself, not captured", "",
		},
		"several proxy users: the first user": {
			"the proxy calls ::6", redirect(func(r *rules.Redirect) {
				r.ProxyUIDs = rules.Singles[uint32](1400, 1500)
			}),
			"[::6]:15002", "uid 1400 gid 1337", "redirected to port 15006", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(t, Options{Redirect: row.redirect}, ordinaryInputs(), row.probe)
			if row.reason != "" && got.Status != NotChecked || row.reason == "" && got.Status != "" ||
				!strings.Contains(got.Reason, row.reason) {
				t.Errorf("status %q, reason %q; want reason %q", got.Status, got.Reason, row.reason)
			}
			if row.reason == "" && got.packet.Destination.String() != row.to {
				t.Errorf("destination %s, want %s", got.packet.Destination, row.to)
			}
			if !strings.HasPrefix(got.Expected, row.expected) ||
				!strings.Contains(got.Packet, row.owner) {
				t.Errorf("packet %q, expected result %q\nwant %q in the packet, and result %q",
					got.Packet, got.Expected, row.owner, row.expected)
			}
		})
	}
}

// Probes that cannot be sent are listed with the reason.
func TestPlanGivesReasonsForMissingProbes(t *testing.T) {
	onlySelf := func(rules.Owner) bool { return false }
	for name, row := range map[string]struct {
		probe  string
		mode   rules.Mode
		change func(*planInputs)
		reason string
	}{
		"no permission to become another user": {"outbound, IPv4", rules.ModeRedirect, func(s *planInputs) {
			s.self, s.mayRunAs = rules.Owner{UID: 1337, GID: 1337}, onlySelf
		}, "it must come from uid 1000 gid 1000; this process has uid 1337 gid 1337"},
		"no permission to become the proxy": {
			"the proxy calls ::6", rules.ModeRedirect, func(s *planInputs) { s.mayRunAs = onlySelf },
			"it must come from uid 1337 gid 1337; this process has uid 0 gid 0",
		},
		"no permission for a transparent listener": {
			"inbound, IPv4", rules.ModeTProxy, func(s *planInputs) { s.mayUseTransparent = false },
			"a transparent listener needs CAP_NET_ADMIN",
		},
		"no permission to set a mark": {"policy route, IPv6", rules.ModeTProxy, func(s *planInputs) {
			s.mayUseTransparent = false
		}, "need CAP_NET_ADMIN"},
		"no direct route from outside": {"inbound, IPv6", rules.ModeRedirect, func(s *planInputs) {
			s.outsideSource = func(netip.Addr) netip.Addr { return netip.Addr{} }
		}, "this host has no direct route to fd00::5"},
		"no place outside the pod": {
			"inbound, IPv6",
			rules.ModeRedirect, func(s *planInputs) {
				s.outsideSource, s.isOutside = func(netip.Addr) netip.Addr { return netip.Addr{} }, false
			}, "and this process cannot make one",
		},
		"no route": {"outbound, IPv6", rules.ModeRedirect, func(s *planInputs) {
			s.route = func(netip.Addr) (netip.Addr, string, error) {
				return netip.Addr{}, "", unix.ENETUNREACH
			}
		}, "no route to 2001:db8::1: network is unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ordinaryInputs()
			row.change(&s)
			got := planned(t, Options{Redirect: typical(row.mode)}, s, row.probe)
			if got.Status != NotChecked || !strings.Contains(got.Reason, row.reason) {
				t.Errorf("status %q, reason %q; want status %q, reason %q", got.Status, got.Reason,
					NotChecked, row.reason)
			}
			if s.isOutside && got.outside && s.mayUseTransparent && got.Next == runOnNode {
				t.Errorf("next step %q, want another one: this process runs on the node", got.Next)
			}
		})
	}
}

func TestFirstOutside(t *testing.T) {
	const last = math.MaxUint32
	for _, row := range []struct {
		ranges []rules.IDRange
		want   uint32
	}{
		{nil, 1000},
		{[]rules.IDRange{{First: 1337, Last: 1337}}, 1000},
		{[]rules.IDRange{{First: 1000, Last: 1000}, {First: 1001, Last: 2000}}, 2001},
		{[]rules.IDRange{{First: 1000, Last: last}}, 999},
		{[]rules.IDRange{{First: 1000, Last: last - 1}}, 999},
		{[]rules.IDRange{{First: 1, Last: 1000}, {First: 1001, Last: last}}, 0},
		{[]rules.IDRange{{First: 0, Last: last}}, 1000},
	} {
		if got := firstOutside(row.ranges); got != row.want {
			t.Errorf("the first ID outside of %v: %d, want %d", row.ranges, got, row.want)
		}
	}
}

func TestCapturesNothing(t *testing.T) {
	o := Options{Redirect: rules.DefaultRedirect(), Port: DefaultPort, PodIPs: podIPs}
	if _, captures := plan(o, rules.MustCompile(o.Redirect), ordinaryInputs()); captures {
		t.Error("the default parameters must capture nothing")
	}
	o.Redirect.OutboundPorts = rules.Singles[uint16](27017)
	if _, captures := plan(o, rules.MustCompile(o.Redirect), ordinaryInputs()); !captures {
		t.Error("parameters with an outbound port must capture something")
	}
}
