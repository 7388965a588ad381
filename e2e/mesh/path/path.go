// Package path describes and checks the path of a request through a mesh. Each proxy that forwards
// a request adds a [Hop] with the addresses of both its connections. The server responds with all
// hops and its own addresses, and the caller knows the addresses of its own connection. If the
// addresses of consecutive hops match, no connection has bypassed a proxy.
package path

import (
	"net"
	"net/netip"
)

// Direction identifies the proxy's listener that accepted a connection.
type Direction string

// The directions.
const (
	Outbound Direction = "outbound" // from the proxy's own pod
	Inbound  Direction = "inbound"  // to the proxy's own pod
)

// A Hop is a proxy that forwarded a request.
type Hop struct {
	// Proxy is the name of the proxy's pod.
	Proxy     string    `json:"proxy"`
	Direction Direction `json:"direction"`
	// Peer and Original are the source and the original destination of the accepted connection.
	// Upstream is the local address of the connection to the next hop.
	Peer     netip.AddrPort `json:"peer"`
	Original netip.AddrPort `json:"original"`
	Upstream netip.AddrPort `json:"upstream"`
}

// An Answer is a server's answer to a request.
type Answer struct {
	// Server is the name of the server's pod. At is the part of the pod that responded: "app", or a
	// port of the proxy, such as "proxy 15021".
	Server string `json:"server"`
	At     string `json:"at"`
	// Local and Peer are the addresses of the server's connection.
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
	// Via lists the hops, the caller's proxy first.
	Via []Hop `json:"via,omitempty"`
}

// A Report is the caller's view of a request.
type Report struct {
	// Caller is the name of the caller's pod.
	Caller string `json:"caller"`
	// Local and Remote are the addresses of the caller's connection; zero if there was no
	// connection.
	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	// Answer is the server's answer. If it is nil, there was no response, and Error is the reason.
	Answer *Answer `json:"answer,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// AddrPort returns the address and port of a TCP or UDP endpoint. An IPv4-mapped IPv6 address is
// returned as an IPv4 address.
func AddrPort(a net.Addr) netip.AddrPort { return ParseAddrPort(a.String()) }

// ParseAddrPort parses an address and port. An IPv4-mapped IPv6 address is returned as an IPv4
// address. ParseAddrPort returns the zero value for an invalid text.
func ParseAddrPort(text string) netip.AddrPort {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
