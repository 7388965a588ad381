package injection_test

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A difference is a deviation of the plugin from istio-init that istio-cni has too.
type difference struct {
	name string
	// undo changes the plugin's parameters to what istio-init would use, and nothing else.
	undo func(r *rules.Redirect)
}

// The agent's status port, and the pod's DNS server.
const agentStatusPort = 15020

var (
	podServer  = netip.MustParseAddr("10.96.0.10")
	resolvConf = "nameserver " + podServer.String() + "\n"
)

var (
	statusPortUncaptured = difference{
		"without an annotation on outbound ports, connections to the status port of any pod are not captured",
		func(r *rules.Redirect) {
			if slices.Equal(r.OutboundExcludePorts, rules.Singles[uint16](agentStatusPort)) {
				r.OutboundExcludePorts = nil
			}
		},
	}
	usualStatusPortExcluded = difference{
		"the usual status port is never captured, also where the pod has another one",
		func(r *rules.Redirect) {
			r.InboundExcludePorts = slices.DeleteFunc(slices.Clone(r.InboundExcludePorts), func(p rules.PortRange) bool {
				return p == rules.Single[uint16](agentStatusPort)
			})
			if i := slices.IndexFunc(r.InboundExcludePorts, func(p rules.PortRange) bool {
				return p.First == agentStatusPort
			}); i >= 0 {
				r.InboundExcludePorts[i].First++
			}
		},
	}
	allDNSCaptured = difference{
		"the queries to all servers are captured, since the pod's own are not known when its rules are made",
		func(r *rules.Redirect) { r.DNS.All, r.DNS.Servers = false, []netip.Addr{podServer} },
	}
	groupOfTheProxy = difference{
		"the proxy's group is what its container says; istio-init is told only the user, and takes it for the group too",
		func(r *rules.Redirect) { r.ProxyGIDs = r.ProxyUIDs },
	}
)

// usual contains the differences in a pod without annotations about them; none is for pods with
// them.
var (
	usual = []difference{statusPortUncaptured}
	none  = []difference{}
)
