package cluster

import (
	"net"
	"strings"
)

// Addresses of a cluster that Start or StartVM created. All these clusters use the same addresses,
// each in its own network namespace. A pod range is large enough for the maximum number of pods of
// a node. The gateway is the control plane's address on the network of a node of StartVM.
const (
	nodeIPv4, nodeIPv6                 = "10.89.0.2", "fd00:89::2"
	gatewayIPv4                        = "10.89.0.1"
	podRangeIPv4, podRangeIPv6         = "10.244.0.0/22", "fd00:244::/64"
	serviceRangeIPv4, serviceRangeIPv6 = "10.96.0.0/16", "fd00:96::/112"
	apiServiceIP                       = "10.96.0.1"
)

// addressList returns ipv4, and also ipv6 if the cluster is dual-stack.
func (o Options) addressList(ipv4, ipv6 string) []string {
	if o.DualStack {
		return []string{ipv4, ipv6}
	}
	return []string{ipv4}
}

// joinedAddresses returns the addresses of addressList separated by commas, as flags of Kubernetes
// expect them.
func (o Options) joinedAddresses(ipv4, ipv6 string) string {
	return strings.Join(o.addressList(ipv4, ipv6), ",")
}

// serverAddresses returns all addresses at which clients reach the API server.
func serverAddresses() []net.IP {
	var addresses []net.IP
	for _, a := range []string{"127.0.0.1", "::1", nodeIPv4, nodeIPv6, gatewayIPv4, apiServiceIP} {
		addresses = append(addresses, net.ParseIP(a))
	}
	return addresses
}
