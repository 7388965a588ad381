package nft_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestTrafficOwners(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{
			name: "captured groups",
			change: func(r *rules.Redirect) {
				r.OwnerGroups = must(rules.ParseGroupSelection("1000,2000-2005", nil))
				// OwnerGroupsExclude has an effect only if all groups are captured.
				r.OwnerGroupsExclude = must(rules.ParseIDs("1000", nil))
			},
			rows: []row{
				{call: "app tcp world:80", want: "outbound"},
				{call: "5:2000 tcp world:80", want: "outbound"},
				{call: "5:2005 tcp world:80", want: "outbound"},
				{call: "5:2006 tcp world:80", want: "outside"},
				{call: "1000:0 tcp world:80", want: "outside"},
				{call: "root tcp world:80", want: "outside"},
				{call: "proxy tcp pod:8080", want: "inbound"},
				{call: "in tcp pod:8080", want: "inbound"},
			},
		},
		{
			name: "DNS queries of captured groups",
			change: func(r *rules.Redirect) {
				r.OwnerGroups = must(rules.ParseGroupSelection("1000", nil))
				r.DNS = rules.DNS{Capture: true, All: true}
			},
			rows: []row{
				{call: "app udp world:53", want: "dns"},
				{call: "app tcp world:53", want: "dns"},
				{call: "root udp world:53", want: "outside"},
				{call: "root tcp world:53", want: "outside"},
			},
		},
		{
			name:   "no group",
			change: func(r *rules.Redirect) { r.OwnerGroups = rules.GroupSelection{} },
			rows: []row{
				{call: "app tcp world:80", want: "outside"},
				{call: "proxy tcp pod:8080", want: "inbound"},
			},
		},
		{
			name: "excluded groups",
			change: func(r *rules.Redirect) {
				r.OwnerGroupsExclude = must(rules.ParseIDs("0,2000-2005,3000", nil))
			},
			rows: []row{
				{call: "app tcp world:80", want: "outbound"},
				{call: "1000:0 tcp world:80", want: "outside"},
				{call: "0:1000 tcp world:80", want: "outbound"},
				{call: "5:2003 tcp world:80", want: "outside"},
				{call: "5:3000 tcp world:80", want: "outside"},
				{call: "5:2006 tcp world:80", want: "outbound"},
			},
		},
		{
			name: "several users of the proxy",
			change: func(r *rules.Redirect) {
				r.ProxyUIDs = must(rules.ParseIDs("1337,2000-2009", nil))
				r.ProxyGIDs = must(rules.ParseIDs("1337,1338", nil))
			},
			rows: []row{
				{call: "proxy tcp world:80", want: "outside"},
				{call: "2000:5 tcp world:80", want: "outside"},
				{call: "2009:5 tcp world:80", want: "outside"},
				{call: "2010:5 tcp world:80", want: "outbound"},
				{call: "5:1338 tcp world:80", want: "outside"},
				// Over lo, Istio's NAT rules for the first user match all packets. Therefore its
				// NAT rules for the other users have no effect. The rules that set TPROXY's mark
				// apply to all users.
				{call: "proxy tcp pod:8080", want: "inbound"},
				{call: "2000:5 tcp pod:8080", want: "application", tproxy: "inbound"},
				{call: "5:1338 tcp pod:8080", want: "application", tproxy: "inbound"},
				{call: "2010:5 tcp pod:8080", want: "application"},
			},
		},
		{
			name: "several users of the proxy, loopback included",
			change: func(r *rules.Redirect) {
				r.ProxyUIDs = must(rules.ParseIDs("1337,2000", nil))
				r.OutboundCIDRs = must(
					rules.ParsePrefixSelection("127.0.0.0/8,10.9.0.0/16,2001:db8::/32"))
			},
			rows: []row{
				{call: "2000:5 tcp pod:8080", want: "inbound"},
				{call: "5:1337 tcp pod:8080", want: "inbound"},
				{call: "app tcp world:80", want: "outbound"},
				{call: "2000:5 tcp world:80", want: "outside"},
			},
		},
	} {
		s.run(t)
	}
}
