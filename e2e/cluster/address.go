package cluster

import (
	"net"
	"strings"
)

// Addresses of a cluster. They are in its own network namespace, so all clusters have the same. The
// pods' ranges are for more pods than a kubelet runs.
const (
	nodeIPv4, nodeIPv6             = "10.89.0.2", "fd00:89::2"
	podRangeIPv4, podRangeIPv6     = "10.244.0.0/22", "fd00:244::/64"
	serviceRangeIPv4, serviceRange = "10.96.0.0/16", "fd00:96::/112"
	apiServiceIP                   = "10.96.0.1"
	// DNSAddress is that of the Service of Options.DNS.
	DNSAddress = "10.96.0.10"
)

// both are the values of the families that the cluster has.
func (o Options) both(ipv4, ipv6 string) []string {
	if o.DualStack {
		return []string{ipv4, ipv6}
	}
	return []string{ipv4}
}

// joined is both as Kubernetes' flags want it.
func (o Options) joined(ipv4, ipv6 string) string { return strings.Join(o.both(ipv4, ipv6), ",") }

// serverAddresses are those under which somebody reaches the API server.
func serverAddresses() []net.IP {
	var all []net.IP
	for _, a := range []string{"127.0.0.1", "::1", nodeIPv4, nodeIPv6, apiServiceIP} {
		all = append(all, net.ParseIP(a))
	}
	return all
}
