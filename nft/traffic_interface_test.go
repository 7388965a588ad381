package nft_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// diverted is the expected answer to a TCP connection that the pod forwards in TPROXY mode. The
// answers of the server arrive on eth0 and belong to an established connection. Therefore the rule
// for established connections delivers them to the pod. Istio's rule has the same effect.
const diverted = "silent"

// TestTrafficInterfaces covers a pod whose second interface connects it to a machine.
func TestTrafficInterfaces(t *testing.T) {
	t.Parallel()
	common := []row{
		{call: "app tcp world:80", want: "outbound"},
		{call: "in tcp pod:8080", want: "inbound"},
		{call: "proxy tcp pod:8080", want: "inbound"},
	}
	excluded := append([]row{
		{call: "app tcp machine:80", want: "machine"},
		{call: "app tcp interface:8080", want: "application"}, // over lo
		{call: "machine tcp pod:8080", want: "application"},
		{call: "machine tcp interface:8080", want: "application"},
		{call: "machine tcp world:80", want: "outside", tproxy: diverted},
		{call: "machine udp world:80", want: "outside"},
		{call: "machine udp pod:80", want: "application"},
	}, common...)
	rerouted := append([]row{
		{call: "machine tcp world:80", want: "outbound"},
		{call: "machine tcp pod:8080", want: "outbound"},
		{call: "machine tcp interface:8080", want: "outbound"},
		{call: "machine udp world:80", want: "outside"},
		{call: "machine udp world:53", want: "outside"},
		{call: "machine udp pod:8080", want: "application"},
		{call: "app tcp machine:80", want: "outbound"},
		{call: "proxy tcp machine:80", want: "machine"},
	}, common...)
	for _, s := range []scenario{
		{
			name: "the interface is neither excluded nor rerouted",
			rows: append([]row{
				{call: "app tcp machine:80", want: "outbound"},
				{call: "proxy tcp machine:80", want: "machine"},
				{call: "machine tcp pod:8080", want: "inbound"},
				{call: "machine tcp world:80", want: "inbound"},
				{call: "machine udp world:80", want: "outside"},
			}, common...),
		},
		{
			name: "the interface is excluded",
			change: func(r *rules.Redirect) {
				r.ExcludeInterfaces = must(rules.ParseInterfaces("net1," + secondInterface))
			},
			rows: excluded,
		},
		{
			name: "the interface is excluded by a name pattern",
			change: func(r *rules.Redirect) {
				r.ExcludeInterfaces = must(rules.ParseInterfaces("vnet+"))
			},
			rows: excluded,
		},
		{
			name: "lo is excluded",
			change: func(r *rules.Redirect) {
				r.ExcludeInterfaces = must(rules.ParseInterfaces("lo"))
			},
			rows: []row{
				{call: "app tcp world:80", want: "outbound"},
				{call: "in tcp pod:8080", want: "inbound"},
				{call: "proxy tcp pod:8080", want: "application"},
				{call: "rootproxy tcp pod:8080", want: "application"},
			},
		},
		{
			name: "the interface is excluded, with DNS and the drop of invalid packets",
			change: func(r *rules.Redirect) {
				r.ExcludeInterfaces = must(rules.ParseInterfaces(secondInterface))
				r.DropInvalid = true
				allDNS(r)
			},
			rows: []row{
				{call: "app udp machine:53", want: "machine"},
				{call: "app tcp machine:53", want: "machine"},
				{call: "app udp world:53", want: "dns"},
				{call: "proxy udp machine:53", want: "machine"},
			},
		},
		{
			name: "the interface is rerouted",
			change: func(r *rules.Redirect) {
				r.RerouteInterfaces = must(rules.ParseInterfaces(secondInterface))
			},
			rows: rerouted,
		},
		{
			name: "the interface is rerouted, with Istio's behavior",
			change: func(r *rules.Redirect) {
				r.RerouteInterfaces = must(rules.ParseInterfaces(secondInterface))
				r.Without = []rules.DeviationID{rules.RerouteTProxy}
			},
			rows: append([]row{
				{call: "machine tcp world:80", want: "outbound", tproxy: "inbound"},
				{call: "machine udp world:80", want: "outside"},
			}, common...),
		},
		{
			name: "the interface is rerouted for some destinations",
			change: func(r *rules.Redirect) {
				r.RerouteInterfaces = must(rules.ParseInterfaces("vnet+"))
				r.OutboundCIDRs = must(rules.ParsePrefixSelection("10.9.9.0/24,2001:db8::/64"))
				// Neither setting applies to rerouted traffic.
				r.OutboundExcludePorts = must(rules.ParsePorts("3306"))
				r.OutboundExcludeCIDRs = must(rules.ParsePrefixes("10.9.9.9/32"))
			},
			rows: []row{
				{call: "machine tcp world:3306", want: "outbound"},
				{call: "machine tcp world2:80", want: "outside", tproxy: diverted},
				{call: "machine tcp pod:8080", want: "application"},
				{call: "app tcp [2001:db8::9]:80", want: "outbound"},
				{call: "app tcp 10.9.9.9:80", want: "outside"},
			},
		},
		{
			name: "the interface is rerouted without destinations",
			change: func(r *rules.Redirect) {
				r.RerouteInterfaces = must(rules.ParseInterfaces(secondInterface))
				r.OutboundCIDRs = rules.PrefixSelection{}
			},
			rows: []row{
				{call: "machine tcp world:80", want: "outside", tproxy: diverted},
				{call: "machine tcp pod:8080", want: "application"},
				{call: "in tcp pod:8080", want: "inbound"},
			},
		},
		{
			name: "rerouting takes precedence over exclusion",
			only: rules.ModeRedirect,
			change: func(r *rules.Redirect) {
				r.RerouteInterfaces = must(rules.ParseInterfaces(secondInterface))
				r.ExcludeInterfaces = r.RerouteInterfaces
			},
			rows: []row{
				{call: "machine tcp world:80", want: "outbound"},
				{call: "app tcp machine:80", want: "machine"},
			},
		},
	} {
		s.run(t)
	}
}
