package injection_test

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A difference is a difference from istio-init's rules that the plugin's and istio-cni's rules
// share.
type difference struct {
	name string
	// remove changes the plugin's parameters to istio-init's, for this difference only.
	remove func(r *rules.Redirect)
}

// agentStatusPort is the default status port of the proxy's agent.
const agentStatusPort = 15020

// podServer is the DNS server of the pod. resolvConf is the resolv.conf of the pod.
var (
	podServer  = netip.MustParseAddr("10.96.0.10")
	resolvConf = "nameserver " + podServer.String() + "\n"
)

var (
	statusPortUncaptured = difference{
		"without an annotation about outbound ports, connections to the status port of any pod are not captured",
		func(r *rules.Redirect) {
			if slices.Equal(r.OutboundExcludePorts, rules.Singles[uint16](agentStatusPort)) {
				r.OutboundExcludePorts = nil
			}
		},
	}
	defaultStatusPortExcluded = difference{
		"the default status port is not captured, even if the pod has another one",
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
		"DNS queries to all servers are captured, because the pod's DNS servers are unknown to the plugin",
		func(r *rules.Redirect) { r.DNS.All, r.DNS.Servers = false, []netip.Addr{podServer} },
	}
	groupOfTheProxy = difference{
		"the plugin reads the proxy's GID from its container; istio-init uses the UID as the GID",
		func(r *rules.Redirect) { r.ProxyGIDs = r.ProxyUIDs },
	}
)

// usualDifferences occur in pods without an annotation about outbound ports. noDifferences is for
// pods with such an annotation.
var (
	usualDifferences = []difference{statusPortUncaptured}
	noDifferences    = []difference{}
)
