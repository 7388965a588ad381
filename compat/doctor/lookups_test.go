package doctor

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// redirectedPod returns the network of a pod with a proxy, an application and the rules of the
// mode.
func redirectedPod(t *testing.T, mode rules.Mode) (*testbed.Network, rules.Ruleset) {
	t.Helper()
	netnstest.RequireRoot(t)
	netnstest.RequireBinary(t, "ip")
	netnstest.RequireBinary(t, "sysctl")
	netnstest.RequireBinary(t, "iptables-legacy")
	netnstest.RequireBinary(t, "nft")
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	proxy := testbed.ProxyOptions{Owner: testbed.ProxyOwner, Forward: true}
	if mode == rules.ModeTProxy {
		proxy = testbed.ProxyOptions{Owner: testbed.TProxyOwner, Forward: true, Transparent: true}
	}
	if err := network.StartProxy(proxy); err != nil {
		t.Fatal(err)
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		t.Fatal(err)
	}
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	desired := rules.MustCompile(typical(mode))
	if _, err := backend.Apply(network.Pod, desired, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	if err := network.WaitForRouting(desired.Routing); err != nil {
		t.Fatal(err)
	}
	return network, desired
}

// interferences returns the warnings and problems about a pod.
func interferences(network *testbed.Network, desired rules.Ruleset, mode rules.Mode) string {
	return warnings(Diagnose(Gather(network.Pod, desired, diff.DefaultBudget), typical(mode)))
}

// warnings returns the warnings and problems among the findings. It omits programs, because
// programs at the cgroup root belong to the test machine.
func warnings(findings []Finding) string {
	var found []string
	for _, f := range findings {
		if f.Topic != "programs" && (f.Severity == Warning || f.Severity == Problem) {
			found = append(found, string(f.Severity)+" "+f.Topic+": "+f.Summary)
		}
	}
	return strings.Join(found, "\n")
}

// TestBrokenConnectionsAreExplained breaks connections of a redirected pod with routes, policy
// rules, interfaces, IPsec policies and sysctls. A call that was answered gets no answer from
// beyond the proxy any more, and the diagnosis names the cause.
func TestBrokenConnectionsAreExplained(t *testing.T) {
	const redirect, tproxy = rules.ModeRedirect, rules.ModeTProxy
	outbound := testbed.Call{Owner: testbed.ApplicationOwner, Network: "tcp", To: netip.MustParseAddrPort("10.9.9.9:80")}
	outbound6, dns, inbound, inbound6 := outbound, outbound, outbound, outbound
	outbound6.To = netip.MustParseAddrPort("[fd00:9::9]:80")
	dns.Network, dns.To = "udp", netip.MustParseAddrPort("10.9.9.9:53")
	inbound.From, inbound.To = testbed.FromNeighbor, netip.AddrPortFrom(testbed.PodIP4, 8080)
	inbound6.From, inbound6.To = testbed.FromNeighbor, netip.AddrPortFrom(testbed.PodIP6, 8080)
	for _, row := range []struct {
		name, script string
		mode         rules.Mode
		broken       testbed.Call
		want         string
	}{
		{
			"no default route", "ip route del default", redirect, outbound,
			"warning routing: there is no IPv4 route to other hosts, such as 198.51.100.1: connections fail (network is unreachable)",
		},
		{
			"no default route of IPv6", "ip -6 route del default", redirect, outbound6,
			"warning routing: there is no IPv6 route to other hosts, such as 2001:db8::1:",
		},
		{
			"a route of type blackhole", "ip route add blackhole 10.9.9.0/24", redirect, outbound,
			"warning routing: the kernel drops packets of uid 65533 to 10.9.9.1 before the rules see them (invalid argument); such packets match: ip -4 route blackhole 10.9.9.0/24 table 254",
		},
		{
			"a route of type throw", "ip route add throw 10.9.9.0/24", redirect, outbound,
			"such packets match: ip -4 route throw 10.9.9.0/24 table 254",
		},
		{
			"a route of type unreachable", "ip -6 route add unreachable fd00:9::/64", tproxy, outbound6,
			"such packets match: ip -6 route unreachable fd00:9::/64 dev lo table 254 metric 1024",
		},
		{
			"a blackhole in a table for the source", "ip route add blackhole default table 77; ip rule add from 10.244.1.0/24 lookup 77", redirect, inbound,
			"warning routing: the kernel drops packets of uid 65533 from 10.244.1.5 to 198.51.100.1 before the rules see them (invalid argument); such packets match: ip -4 route blackhole default table 77",
		},
		{
			"a blackhole in a table for all packets", "ip route add blackhole default table 77; ip rule add lookup 77", redirect, outbound,
			"problem routing: the kernel drops packets to other hosts, such as packets of uid 65533 to 198.51.100.1, before the rules see them (invalid argument); such packets match: ip -4 route blackhole default table 77",
		},
		{
			"a local route of another host", "ip route add local 10.9.9.0/24 dev lo table local", redirect, outbound,
			"warning routing: the kernel delivers packets of uid 65533 to 10.9.9.1 in the namespace instead of sending them to another host; such packets match: ip -4 route local 10.9.9.0/24 dev lo table 255",
		},
		{
			"local routes of all hosts for a user", "ip -6 rule add pref 5 uidrange 1000-1000 lookup 77; ip -6 route add local default dev lo table 77", tproxy, outbound6,
			"warning routing: the kernel delivers packets of uid 1000 to 2001:db8::1 in the namespace instead of sending them to another host; such packets match: ip -6 route local default dev lo table 77",
		},
		{
			"local routes of all hosts", "ip route add local 0.0.0.0/1 dev lo; ip route add local 128.0.0.0/1 dev lo", redirect, outbound,
			"problem routing: the kernel delivers packets to other hosts, such as packets of uid 65533 to 198.51.100.1, in the namespace instead of sending them to another host; it answers with the route ip -4 route local 198.51.100.1/32 dev lo table 254",
		},
		{
			"a default route over lo", "ip route replace default dev lo", redirect, outbound,
			"problem routing: the kernel sends packets to other hosts, such as packets of uid 65533 to 198.51.100.1, over lo instead of to another host; such packets match: ip -4 route unicast default dev lo table 254",
		},
		{
			"a policy rule for a destination", "ip rule add to 10.9.9.9 blackhole", redirect, outbound,
			"such packets match: ip -4 rule priority 32765 to 10.9.9.9/32 blackhole",
		},
		{
			"a policy rule for a user", "ip rule add uidrange 1000-1000 unreachable", redirect, outbound,
			"the kernel drops packets of uid 1000 to 198.51.100.1 before the rules see them (network is unreachable)",
		},
		{
			"a policy rule for a port", "ip -6 rule add ipproto tcp dport 80 prohibit", redirect, outbound6,
			"the kernel drops tcp packets of uid 65533 to [2001:db8::1]:80 before",
		},
		{
			"no local route to the pod", "ip route del local 10.244.1.5 table local", redirect, inbound,
			"problem routing: packets to 10.244.1.5 are not delivered in the namespace; the kernel sends them by another route: ip -4 route unicast 10.244.1.5/32 dev eth0 table 254 src 10.244.1.5: inbound connections fail",
		},
		{
			"no local route to the pod's IPv6 address", "ip -6 route del local fd00:10:244:1::5 dev eth0 table local", tproxy, inbound6,
			"problem routing: packets to fd00:10:244:1::5 are not delivered",
		},
		{
			"a blackhole for the proxy's listeners", "ip route replace blackhole 127.0.0.1 table local", redirect, outbound,
			"problem routing: packets to 127.0.0.1 are not delivered in the namespace; the kernel drops them (invalid argument): redirected outbound connections do not reach the proxy",
		},
		{
			"no local source address of the proxy", "ip addr del 127.0.0.1/8 dev lo; ip addr add 127.0.0.1/32 dev lo", redirect, inbound,
			"problem routing: packets to 127.0.0.6 are not delivered in the namespace; the kernel sends them by another route: ip -4 route unicast 127.0.0.6/32 via 10.244.1.1 dev eth0",
		},
		{
			"a loopback address as source", "ip route replace default via 10.244.1.1 dev eth0 src 127.0.0.6", redirect, outbound,
			"problem routing: the kernel drops packets to other hosts, such as packets of uid 65533 to 198.51.100.1, before the rules see them (invalid argument); such packets match: ip -4 route unicast default via 10.244.1.1 dev eth0 table 254 src 127.0.0.6",
		},
		{
			"::6 as source", "ip -6 route replace default via fd00:10:244:1::1 dev eth0 src ::6", redirect, outbound6,
			"problem routing: a route gives connections to other hosts the source address ::6, to which no answers return: ",
		},
		{
			"inbound connections that iptables-legacy drops", "iptables-legacy -t mangle -A PREROUTING -p tcp --dport 8080 -j DROP", redirect, inbound,
			"with these parameters alone the packet is redirected to port 15006 of this host; with foreign rules it is dropped by ip mangle PREROUTING #1: tcp dport 8080 counter drop",
		},
		{
			"outbound connections that a policy of ip6tables-legacy drops", "ip6tables-legacy -t mangle -P OUTPUT DROP", tproxy, outbound6,
			"with foreign rules it is dropped: ",
		},
		{
			"captured connections that iptables-legacy drops at input", "iptables-legacy -A INPUT -p tcp --dport 15006 -j DROP", redirect, inbound,
			"warning rules: table filter of iptables-legacy (IPv4) has 1 rule at input (chain INPUT, priority 0) and can drop packets",
		},
		{
			"answers of the proxy that iptables-legacy drops", "iptables-legacy -A OUTPUT -p tcp --sport 15001 -j DROP", redirect, outbound,
			"problem rules: the proxy's answers to captured outbound connections (out tcp 127.0.0.1:15001 > 10.244.1.5:40000 dev lo uid 1337 gid 1337 state established reply flags syn,ack): with foreign rules the packet is dropped by ip filter OUTPUT #1: ",
		},
		{
			"a policy that drops all packets but the first", "iptables-legacy -A OUTPUT -p tcp --syn -j ACCEPT; iptables-legacy -A OUTPUT -p udp -j ACCEPT; iptables-legacy -P OUTPUT DROP", redirect, inbound,
			"with foreign rules the packet is dropped: chain ip filter OUTPUT drops by its policy",
		},
		{
			"packets of established connections that nf_tables drops",
			"nft 'add table inet x; add chain inet x c { type filter hook prerouting priority 0; }; add rule inet x c ct state established drop'",
			tproxy, inbound6, "with foreign rules the packet is dropped by inet x c #1: ct state established drop",
		},
		{
			"answers of the proxy that nf_tables drops at postrouting",
			"nft 'add table inet x; add chain inet x c { type filter hook postrouting priority 0; }; add rule inet x c tcp sport 8080 drop'",
			tproxy, inbound, "problem rules: the proxy's answers to captured inbound connections (out tcp 10.244.1.5:8080 > ",
		},
		{
			"answers of the application that nf_tables drops",
			"nft 'add table inet x; add chain inet x c { type filter hook output priority 0; }; add rule inet x c tcp sport 8080 drop'",
			redirect, inbound, "problem rules: the application's answers to the proxy (out tcp 10.244.1.5:8080 > 127.0.0.6:40000 dev lo ",
		},
		{
			"another source address over lo",
			"nft 'add table ip x; add chain ip x c { type nat hook postrouting priority 100; }; add rule ip x c oifname lo snat to 10.9.9.200'",
			redirect, outbound, "source 10.9.9.200 by ip x c #1: ",
		},
		{
			"established connections to the proxy that iptables-legacy drops after NAT",
			"iptables-legacy -A OUTPUT -d 127.0.0.1 -p tcp --dport 15001 -m conntrack --ctstate ESTABLISHED -j DROP",
			redirect, outbound, "problem rules: data of captured outbound connections (out tcp 10.244.1.5:40000 > 127.0.0.1:15001 dev eth0 ",
		},
		{
			"some packets of established connections",
			"iptables-legacy -t mangle -A PREROUTING -m conntrack --ctstate ESTABLISHED -m statistic --mode random --probability 0.999 -j DROP",
			redirect, outbound, "with foreign rules the packet may be dropped, depending on a limit",
		},
		{
			"an interface without an IPv4 address",
			"ip addr del 10.244.1.5/24 dev eth0; ip addr add 10.244.1.5/32 dev lo; ip route add 10.244.1.1 dev eth0 src 10.244.1.5; ip route add default via 10.244.1.1 dev eth0 src 10.244.1.5",
			redirect, inbound, "problem interfaces: eth0 has no IPv4 address: the kernel drops captured connections that arrive on it",
		},
		{
			"a route for broadcasts", "ip route add broadcast 10.9.9.9 dev eth0 table local", redirect, outbound,
			"such packets match: ip -4 route broadcast 10.9.9.9/32 dev eth0 table 255",
		},
		{
			"unacknowledged connections that conntrack forgets", "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_unacknowledged=0", redirect, outbound,
			"problem settings: nf_conntrack_tcp_timeout_unacknowledged is 0: ",
		},
		{
			"an interface that is down", "ip link set eth0 down", tproxy, inbound,
			"problem interfaces: eth0 has the address 10.244.1.5, but is down",
		},
		{
			"IPv6 is disabled", "sysctl -w net.ipv6.conf.eth0.disable_ipv6=1", redirect, inbound6,
			"problem settings: these parameters capture IPv6, but IPv6 is disabled for eth0",
		},
		{
			"an IPsec policy that blocks packets", "ip xfrm policy add src 0.0.0.0/0 dst 10.9.9.9/32 dir out action block", redirect, outbound,
			"warning routing: an IPsec policy drops outgoing packets to 10.9.9.9/32, because it blocks them: connections fail before the rules see their packets: ip xfrm policy src 0.0.0.0/0 dst 10.9.9.9/32 dir out action block priority 0",
		},
		{
			"an IPsec policy without a state",
			"ip xfrm policy add src ::/0 dst fd00:9::/32 dir out tmpl src fd00:10:244:1::5 dst fd00:10:244:1::1 proto esp mode tunnel",
			tproxy, outbound6,
			"warning routing: an IPsec policy drops outgoing packets to fd00:9::/32, because it requires IPsec, and no state for it exists: ",
		},
		{
			"an IPsec policy for incoming packets",
			"ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir in tmpl src 10.244.1.1 dst 10.244.1.5 proto esp mode tunnel",
			tproxy, inbound,
			"problem routing: an IPsec policy drops incoming packets from 0.0.0.0/0 to 0.0.0.0/0, because it requires IPsec, which packets of the mesh do not have: these packets do not reach the proxy: ",
		},
		{
			"IPsec policies that block packets by default", "ip xfrm policy setdefault in block out block", redirect, outbound6,
			"problem routing: an IPsec policy drops outgoing packets to ::/0, because no other policy allows them: connections fail before the rules see their packets: ip xfrm policy default out block",
		},
		{
			"marks of accepted connections", "sysctl -w net.ipv4.tcp_fwmark_accept=1", tproxy, inbound6,
			"problem settings: tcp_fwmark_accept is 1: ",
		},
		{
			"SYN cookies for all connections", "sysctl -w net.ipv4.tcp_syncookies=2", tproxy, inbound,
			"problem settings: inbound connections may reach the application without the proxy: net.ipv4.tcp_syncookies is 2",
		},
		{
			"connections that conntrack forgets", "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_syn_sent=0", redirect, outbound,
			"problem settings: nf_conntrack_tcp_timeout_syn_sent is 0: ",
		},
		{
			"established connections that conntrack forgets", "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=0", redirect, inbound,
			"problem settings: nf_conntrack_tcp_timeout_established is 0: ",
		},
		{
			"DNS queries that conntrack forgets", "sysctl -w net.netfilter.nf_conntrack_udp_timeout=0", redirect, dns,
			"problem settings: nf_conntrack_udp_timeout is 0: ",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			network, desired := redirectedPod(t, row.mode)
			before := row.broken
			before.Timeout = 20 * time.Second
			if answer, err := network.Dial(before); err != nil || answer.Outcome != testbed.Answered {
				t.Fatalf("before the change: %s, error %v, want an answer", answer, err)
			}
			if found := interferences(network, desired, row.mode); found != "" {
				t.Errorf("before the change: want no warning, got\n%s", found)
			}
			shell(t, network.Pod, row.script)
			row.broken.Timeout = time.Second
			answer, err := network.Dial(row.broken)
			if err != nil || answer.Outcome == testbed.Answered && len(answer.Upstream) > 0 {
				t.Errorf("after the change: %s, error %v, want no answer from beyond the proxy", answer, err)
			}
			if found := interferences(network, desired, row.mode); !strings.Contains(found, row.want) {
				t.Errorf("got\n%s\nwant %q", found, row.want)
			}
		})
	}
}

// TestUntrackedConnectionsAreReported disables conntrack for packets that arrive. Whether their
// connections break depends on the order in which packets arrive.
func TestUntrackedConnectionsAreReported(t *testing.T) {
	network, desired := redirectedPod(t, rules.ModeTProxy)
	shell(t, network.Pod, "nft 'add table inet x; add chain inet x c { type filter hook prerouting priority -300; }; "+
		"add rule inet x c notrack'")
	const want = "untracked by inet x c #1: notrack: conntrack does not know its connection"
	if found := interferences(network, desired, rules.ModeTProxy); !strings.Contains(found, want) {
		t.Errorf("got\n%s\nwant %q", found, want)
	}
}

// TestHarmlessRoutesAreNotReported adds routes, policy rules and sysctls that do not affect
// captured connections, among them those of Tailscale, wg-quick and a second interface.
func TestHarmlessRoutesAreNotReported(t *testing.T) {
	const second = "ip link add net1 type veth peer name net2; ip addr add 10.60.0.1/24 dev net1; " +
		"ip -6 addr add fd00:60::1/64 dev net1 nodad; ip link set net1 up; ip link set net2 up; " +
		// The kernel adds the local route later.
		"for i in $(seq 1000); do ip -6 route show table local | grep -q fd00:60::1 && break; sleep 0.02; done; "
	for name, script := range map[string]string{
		"Tailscale": `ip rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
			ip rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
			ip rule add pref 5250 fwmark 0x80000/0xff0000 unreachable
			ip rule add pref 5270 lookup 52
			ip route add throw 10.0.0.0/8 table 52; ip route add throw 127.0.0.0/8 table 52
			ip route add 100.100.100.100 dev eth0 table 52`,
		"wg-quick": `ip rule add pref 32001 not fwmark 51820 table 51820
			ip rule add pref 32000 table main suppress_prefixlength 0
			ip route add default via 10.244.1.1 dev eth0 table 51820`,
		"a blackhole that no policy rule looks up": "ip route add blackhole default table 77",
		"a blackhole with a route that precedes it": `ip route add blackhole default metric 900
			ip -6 route add unreachable default metric 9000`,
		"a second interface":                      second,
		"a second interface that is down":         second + "ip link set net1 down",
		"a second interface and strict rp_filter": second + "sysctl -w net.ipv4.conf.all.rp_filter=1",
		"a table for the second interface": second + `ip rule add pref 32000 from 10.60.0.1 lookup 60
			ip route add default via 10.60.0.2 dev net1 table 60`,
		"IPsec with some peers": `ip xfrm policy add src 10.70.0.0/16 dst 10.244.1.5/32 dir in tmpl src 10.70.0.1 dst 10.244.1.5 proto esp mode tunnel
			ip xfrm policy add src 10.70.0.0/16 dst 10.244.1.5/32 dir fwd tmpl src 10.70.0.1 dst 10.244.1.5 proto esp mode tunnel
			ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir out priority 5`,
		"an IPsec policy for packets over lo": "ip xfrm policy add src 127.0.0.0/8 dst 127.0.0.0/8 dir out action block",
		"sysctls": `sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.route_localnet=1 \
			net.ipv4.conf.all.accept_local=1 net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.lo.rp_filter=1 net.ipv4.fwmark_reflect=1 \
			net.ipv4.tcp_syncookies=1`,
		"REDIRECT: only the proxy may send to other hosts": `for l in iptables-legacy ip6tables-legacy; do
			$l -A OUTPUT -p udp -j ACCEPT; $l -A OUTPUT -p ipv6-icmp -j ACCEPT
			$l -A OUTPUT -o lo -j ACCEPT; $l -A OUTPUT -m owner --uid-owner 1337 -j ACCEPT; done
			iptables-legacy -A OUTPUT -d 127.0.0.0/8 -j ACCEPT; iptables-legacy -A OUTPUT -j REJECT
			ip6tables-legacy -A OUTPUT -d ::1 -j ACCEPT; ip6tables-legacy -A OUTPUT -j REJECT`,
		"REDIRECT: only translated and local connections": `nft 'add table inet x
			add chain inet x c { type filter hook output priority 0; policy drop; }
			add rule inet x c ct status dnat accept; add rule inet x c oifname lo accept
			add rule inet x c meta l4proto { udp, ipv6-icmp } accept; add rule inet x c meta skuid 1337 accept'`,
		"connections with a state": `for l in iptables-legacy ip6tables-legacy; do
			$l -A OUTPUT -m conntrack --ctstate NEW,ESTABLISHED,RELATED -j ACCEPT; $l -A OUTPUT -p ipv6-icmp -j ACCEPT
			$l -P OUTPUT DROP; $l -A FORWARD -j DROP; done
			iptables-legacy -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE`,
		"tcp_fwmark_accept without TPROXY": "sysctl -w net.ipv4.tcp_fwmark_accept=1",
	} {
		for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
			if mode == rules.ModeTProxy && (strings.HasPrefix(name, "tcp_fwmark_accept") ||
				strings.HasPrefix(name, "REDIRECT: ")) {
				continue
			}
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				t.Parallel()
				network, desired := redirectedPod(t, mode)
				shell(t, network.Pod, script)
				for _, call := range []testbed.Call{
					{Owner: testbed.ApplicationOwner, Network: "tcp", To: netip.MustParseAddrPort("10.9.9.9:80")},
					{Owner: testbed.ApplicationOwner, Network: "tcp", To: netip.MustParseAddrPort("[fd00:9::9]:80")},
					{From: testbed.FromNeighbor, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP4, 8080)},
					{From: testbed.FromNeighbor, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP6, 8080)},
				} {
					call.Timeout = 20 * time.Second
					if answer, err := network.Dial(call); err != nil || len(answer.Upstream) != 1 {
						t.Errorf("%s: %s, error %v, want an answer by the proxy", call, answer, err)
					}
				}
				if found := interferences(network, desired, mode); found != "" {
					t.Errorf("want no warning, got\n%s", found)
				}
			})
		}
	}
}

// TestHealthyPodsAreNotReported diagnoses pods with one address family, without DNS and in ambient
// mode, with the rules of each backend.
func TestHealthyPodsAreNotReported(t *testing.T) {
	const onlyIPv4 = "ip -6 addr flush dev eth0; sysctl -w net.ipv6.conf.eth0.disable_ipv6=1"
	for _, row := range []struct {
		name, script string
		change       func(*rules.Redirect)
		isAmbient    bool
	}{
		{"IPv4 only", onlyIPv4, func(r *rules.Redirect) { r.IPv6 = false }, false},
		{"IPv4 only, without IPv6 in the namespace", "sysctl -w net.ipv6.conf.all.disable_ipv6=1", func(r *rules.Redirect) { r.IPv6 = false }, false},
		{"IPv6 only", "ip -4 addr flush dev eth0", func(*rules.Redirect) {}, false},
		{"without DNS", "true", func(r *rules.Redirect) { r.DNS = rules.DNS{} }, false},
		{"ambient mode", "true", nil, true},
		{"ambient mode, IPv6 only", "ip -4 addr flush dev eth0", nil, true},
	} {
		for _, name := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
			for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
				if row.isAmbient && mode == rules.ModeTProxy {
					continue
				}
				t.Run(strings.Join([]string{row.name, string(name), string(mode)}, ", "), func(t *testing.T) {
					t.Parallel()
					backend, err := compat.Choose(name)
					if err != nil {
						t.Fatal(err)
					}
					netnstest.RequireBinary(t, "ip")
					netnstest.RequireBinary(t, "sysctl")
					pod := netnstest.NewPair(t).Pod
					shell(t, pod, row.script)
					var desired rules.Ruleset
					var diagnose func(Facts) []Finding
					if row.isAmbient {
						a := rules.DefaultAmbient()
						if desired, err = rules.CompileAmbient(a); err != nil {
							t.Fatal(err)
						}
						diagnose = func(f Facts) []Finding { return DiagnoseAmbient(f, a) }
					} else {
						r := typical(mode)
						row.change(&r)
						desired = rules.MustCompile(r)
						diagnose = func(f Facts) []Finding { return Diagnose(f, r) }
					}
					if _, err := backend.Apply(pod, desired, compat.Snapshot{}); err != nil {
						t.Fatal(err)
					}
					f := Gather(pod, desired, diff.DefaultBudget)
					f.Backend = name
					if found := warnings(diagnose(f)); found != "" {
						t.Errorf("want no warning, got\n%s", found)
					}
				})
			}
		}
	}
}

// TestManyDroppingRoutes covers a pod with many policy rules, and with more routes that drop
// packets than are looked up. The number of findings and the time are limited.
func TestManyDroppingRoutes(t *testing.T) {
	network, desired := redirectedPod(t, rules.ModeRedirect)
	shell(t, network.Pod, `{ for i in $(seq 20000); do
			echo "route add blackhole 10.$((i/250+10)).$((i%250)).0/24"
			echo "route add throw 224.$((i/250)).$((i%250)).0/24"
		done
		for i in $(seq 5000); do echo "rule add pref $((200+i)) lookup main"; done; } | ip -batch -`)
	bound := budgettest.Bound{Processor: 10 * time.Second, Allocated: 256 << 20}
	bound.Check(t, "many routes and rules", func() {
		found := interferences(network, desired, rules.ModeRedirect)
		for text, want := range map[string]int{
			"the kernel drops packets of uid 65533 to 10.": 10,
			"not all IPv4 routes and policy rules that may drop packets or keep them in the namespace are known: there are 100 or more": 1,
		} {
			if n := strings.Count(found, text); n != want {
				t.Errorf("%q in %d findings, want %d:\n%s", text, n, want, found)
			}
		}
	})
}
