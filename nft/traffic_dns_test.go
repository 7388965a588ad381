package nft_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// allDNS captures the queries to every server.
func allDNS(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }

// listedDNS captures the queries to "resolver".
func listedDNS(r *rules.Redirect) {
	r.DNS = rules.DNS{
		Capture: true, Servers: []netip.Addr{hosts["resolver"][0], hosts["resolver"][1]},
	}
}

func TestTrafficDNS(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{
			name:   "every query",
			change: allDNS,
			rows: []row{
				{call: "app udp world:53", want: "dns"},
				{call: "app tcp world:53", want: "dns"},
				{call: "root udp resolver:53", want: "dns"},
				{call: "app udp lo:53", want: "dns"},
				{call: "app tcp lo:53", want: "dns"},
				{call: "app udp pod:53", want: "dns"},
				{call: "app udp 127.0.0.53:53", want: "dns"},
				{call: "app udp world:5353", want: "outside"},
				{call: "app udp world:443", want: "outside"},
				{call: "app tcp world:80", want: "outbound"},
				{call: "proxy udp world:53", want: "outside"},
				{call: "proxy tcp world:53", want: "outside"},
				{call: "rootproxy udp world:53", want: "outside"},
				{call: "in udp pod:53", want: "application"},
				{call: "in udp pod:15053", want: "dns"},
				{call: "in tcp pod:53", want: "inbound"},
				{call: "app udp pod:15053", want: "dns"},
				// The rules for the proxy's user precede the rules for the proxy's group. Only the
				// rules for the group capture calls to port 53 over lo.
				{call: "proxy tcp pod:53", want: "application", tproxy: "inbound"},
				{call: "rootproxy tcp pod:53", want: "inbound"},
				{call: "proxy udp pod:53", want: "application"},
			},
		},
		{
			name:   "listed servers",
			change: listedDNS,
			rows: []row{
				{call: "app udp resolver:53", want: "dns"},
				{call: "app tcp resolver:53", want: "dns"},
				{call: "app udp world:53", want: "outside"},
				{call: "app tcp world:53", want: "outbound"},
				{call: "app udp resolver:80", want: "outside"},
				{call: "app tcp resolver:80", want: "outbound"},
				{call: "app udp lo:53", want: "application"},
				{call: "app tcp 127.0.0.53:53", want: "outbound"},
				{call: "app tcp lo:53", want: "application"},
				{call: "proxy udp resolver:53", want: "outside"},
			},
		},
		{
			name: "only an IPv6 server",
			change: func(r *rules.Redirect) {
				r.DNS = rules.DNS{Capture: true, Servers: []netip.Addr{hosts["resolver"][1]}}
			},
			rows: []row{
				{call: "app udp [fd00:96::10]:53", want: "dns"},
				{call: "app udp 10.96.0.10:53", want: "outside"},
				{call: "app tcp 10.96.0.10:53", want: "outbound"},
			},
		},
		{
			name:   "capture without servers captures nothing",
			change: func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true} },
			rows: []row{
				{call: "app udp world:53", want: "outside"},
				{call: "app tcp world:53", want: "outbound"},
			},
		},
		{
			name: "an excluded address does not exempt queries",
			change: func(r *rules.Redirect) {
				listedDNS(r)
				r.OutboundExcludeCIDRs = must(rules.ParsePrefixes("10.96.0.0/16,fd00:96::/64"))
			},
			rows: []row{
				{call: "app udp resolver:53", want: "dns"},
				{call: "app tcp resolver:53", want: "dns"},
				{call: "app tcp resolver:80", want: "outside"},
			},
		},
		{
			name: "an excluded port 53 exempts queries",
			change: func(r *rules.Redirect) {
				allDNS(r)
				r.OutboundExcludePorts = must(rules.ParsePorts("50-60"))
			},
			rows: []row{
				{call: "app udp world:53", want: "outside"},
				{call: "app tcp world:53", want: "outside"},
			},
		},
	} {
		s.run(t)
	}
}

// TestTrafficDNSZones makes the application and the proxy send queries from the same address and
// port to the same server, one after the other. Without zones, conntrack would treat the second
// query as part of the first connection, and translate the query's destination too.
func TestTrafficDNSZones(t *testing.T) {
	t.Parallel()
	for _, dns := range []struct {
		name   string
		change func(*rules.Redirect)
	}{{"every query", allDNS}, {"listed servers", listedDNS}} {
		app, proxy := "app udp resolver:53 from pod:", "proxy udp resolver:53 from pod:"
		scenario{
			name:   dns.name,
			change: dns.change,
			rows: []row{
				{call: app + "5000", want: "dns"},
				{call: proxy + "5000", want: "outside"},
				{call: app + "5000", want: "dns"},
				{call: proxy + "5001", want: "outside"},
				{call: app + "5001", want: "dns"},
				{call: proxy + "5001", want: "outside"},
				{call: "rootproxy udp resolver:53 from pod:5000", want: "outside"},
			},
		}.run(t)
	}
}

// TestTrafficDNSNeedsZones checks that the zones are needed: without the chains that set the zones,
// a query of the proxy from the same address and port as the application's query is redirected too.
func TestTrafficDNSNeedsZones(t *testing.T) {
	t.Parallel()
	b := startNetwork(t, testbed.Options{}, rules.ModeRedirect, nil)
	r := sidecar(rules.ModeRedirect)
	allDNS(&r)
	rs := rules.MustCompile(r)
	var chains []rules.Chain
	for _, c := range rs.Tables[0].Chains {
		if c.Base == nil || c.Base.Priority != rules.RawPriority {
			chains = append(chains, c)
		}
	}
	rs.Tables[0].Chains = chains
	applyRules(t, b, rs)
	for _, sender := range []string{"app", "proxy"} {
		for _, c := range (row{call: sender + " udp resolver:53 from pod:5000"}).calls() {
			c.Timeout = callTimeout
			if got, err := b.Dial(c); err != nil || !isAnswer(got, "dns") {
				t.Errorf("%s: %s, error %v, want dns", c, got, err)
			}
		}
	}
}
