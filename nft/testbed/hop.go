package testbed

import (
	"fmt"
	"net/netip"
	"strings"
)

// Name is who answers a call.
type Name string

// The names. Those of the proxy and its agent are of its ports.
const (
	Outside     Name = "outside"     // the neighbour, on any address
	Machine     Name = "machine"     // behind the pod's second interface
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
	// To is the destination that the caller had asked for, as the server finds it out. A datagram's
	// is known only as far as it was not translated: then it is the same as Local.
	To netip.AddrPort
	// Local is the server's own address for this call, Peer the caller's.
	Local, Peer netip.AddrPort
}

// String says who was reached for which destination: "outbound 10.9.9.9:80".
func (h Hop) String() string { return string(h.By) + " " + h.To.String() }

// An answer is a line: the call's token, and a field for each hop.
const fieldSep = "\t"

// encode writes a line.
func encode(token string, hops []Hop) string {
	fields := []string{token}
	for _, h := range hops {
		fields = append(fields, fmt.Sprintf("%s %s %s %s", h.By, h.To, h.Local, h.Peer))
	}
	return strings.Join(fields, fieldSep) + "\n"
}

// decode reads a line.
func decode(line string) (token string, hops []Hop, err error) {
	token, rest, found := strings.Cut(strings.TrimSuffix(line, "\n"), fieldSep)
	if !found {
		return "", nil, fmt.Errorf("%q is not an answer", line)
	}
	for field := range strings.SplitSeq(rest, fieldSep) {
		var h Hop
		var ends [3]string
		if _, err := fmt.Sscan(field, &h.By, &ends[0], &ends[1], &ends[2]); err != nil {
			return "", nil, fmt.Errorf("%q is not an answer: %w", line, err)
		}
		for i, end := range []*netip.AddrPort{&h.To, &h.Local, &h.Peer} {
			if *end, err = netip.ParseAddrPort(ends[i]); err != nil {
				return "", nil, fmt.Errorf("%q is not an answer: %w", line, err)
			}
		}
		hops = append(hops, h)
	}
	return token, hops, nil
}
