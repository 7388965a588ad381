// Package path describes and checks the path of a request through a mesh. Each proxy that forwards
// a request adds itself to it, with the addresses of both of its connections. The server answers
// with what it has received, and the caller knows its own address. Only if each proxy has forwarded
// the request, each address is the next hop's peer. A connection that bypassed a proxy is therefore
// always detected.
package path

import "net/netip"

// Direction is the listener of the proxy that accepted a connection.
type Direction string

// The directions.
const (
	Outbound Direction = "outbound" // from the proxy's own pod
	Inbound  Direction = "inbound"  // to the proxy's own pod
)

// A Hop is a proxy that forwarded a request.
type Hop struct {
	// Proxy is the name of its pod.
	Proxy     string    `json:"proxy"`
	Direction Direction `json:"direction"`
	// Peer is the source of the accepted connection, Original its original destination, and
	// Upstream the local address of the connection to the next hop.
	Peer     netip.AddrPort `json:"peer"`
	Original netip.AddrPort `json:"original"`
	Upstream netip.AddrPort `json:"upstream"`
}

// An Answer is a server's answer to a request.
type Answer struct {
	// Server is the name of its pod. At is the part of it that answered: "app", or a port of the
	// proxy, such as "proxy 15021".
	Server string `json:"server"`
	At     string `json:"at"`
	// Local and Peer are the addresses of the connection, as the server sees it.
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
	// Via lists the proxies, the caller's first.
	Via []Hop `json:"via,omitempty"`
}

// A Report is the caller's view of a request.
type Report struct {
	// Caller is the name of its pod.
	Caller string `json:"caller"`
	// Local and Remote are the addresses of the connection as the caller sees it. They are invalid
	// if there was no connection.
	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	// Answer is nil if there was none. Then Error is the reason.
	Answer *Answer `json:"answer,omitempty"`
	Error  string  `json:"error,omitempty"`
}
