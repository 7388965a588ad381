package testbed

import (
	"fmt"
	"net/netip"
	"strings"
)

// Name is the name of a server.
type Name string

// The names. The proxy and its agent have one name for each port.
const (
	Outside     Name = "outside"     // the neighbor, on any address
	Machine     Name = "machine"     // connected to the pod's second interface
	Application Name = "application" // in the pod
	Outbound    Name = "outbound"    // the proxy's listener for outbound connections
	Inbound     Name = "inbound"     // the proxy's listener for inbound connections
	Tunnel      Name = "tunnel"      // the proxy's listener for other proxies (HBONE)
	DNS         Name = "dns"         // the agent's DNS server
	Agent       Name = "agent"       // the agent's status port, 15020
	Health      Name = "health"      // the proxy's health port, 15021
	Metrics     Name = "metrics"     // the proxy's metrics port, 15090
)

// A Hop is one server that a call has reached.
type Hop struct {
	By Name
	// To is the original destination of the call. For a datagram, it equals Local, the destination
	// after NAT, because the server cannot determine the original destination.
	To netip.AddrPort
	// Local is the address of the server's socket, and Peer the address of the caller.
	Local, Peer netip.AddrPort
}

// String returns the server's name and the original destination, such as "outbound 10.9.9.9:80".
func (h Hop) String() string { return string(h.By) + " " + h.To.String() }

// fieldSep separates the fields of an answer, which is a line with the token of the request and a
// field for each hop.
const fieldSep = "\t"

// encode encodes an answer as a line.
func encode(token string, hops []Hop) string {
	fields := []string{token}
	for _, h := range hops {
		fields = append(fields, fmt.Sprintf("%s %s %s %s", h.By, h.To, h.Local, h.Peer))
	}
	return strings.Join(fields, fieldSep) + "\n"
}

// decode decodes an answer. It returns at least one hop, or an error.
func decode(line string) (token string, hops []Hop, err error) {
	token, rest, found := strings.Cut(strings.TrimSuffix(line, "\n"), fieldSep)
	if !found {
		return "", nil, fmt.Errorf("%q is not an answer", line)
	}
	for field := range strings.SplitSeq(rest, fieldSep) {
		var h Hop
		var addrs [3]string
		if _, err := fmt.Sscan(field, &h.By, &addrs[0], &addrs[1], &addrs[2]); err != nil {
			return "", nil, fmt.Errorf("%q is not an answer: %w", line, err)
		}
		for i, addr := range []*netip.AddrPort{&h.To, &h.Local, &h.Peer} {
			if *addr, err = netip.ParseAddrPort(addrs[i]); err != nil {
				return "", nil, fmt.Errorf("%q is not an answer: %w", line, err)
			}
		}
		hops = append(hops, h)
	}
	return token, hops, nil
}
