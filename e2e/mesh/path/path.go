// Package path says which way a request went through a mesh, and judges it. Every proxy that
// carries a request writes itself into it with the ends of both of its connections; the server
// answers with what has arrived; and the caller knows its own end. Only a request that each proxy
// has carried makes a chain, in which each end is the next one's peer: a connection that passed a
// proxy by cannot look as if it had not.
package path

import "net/netip"

// Direction is which of the proxy's listeners took a connection.
type Direction string

// The directions.
const (
	Outbound Direction = "outbound" // from the proxy's own pod
	Inbound  Direction = "inbound"  // to it
)

// A Hop is a proxy that carried a request.
type Hop struct {
	// Proxy is its pod's name.
	Proxy     string    `json:"proxy"`
	Direction Direction `json:"direction"`
	// Peer is whom the connection was accepted from, Original the destination that the peer had
	// asked for, and Upstream the proxy's own end of the connection on which it went on.
	Peer     netip.AddrPort `json:"peer"`
	Original netip.AddrPort `json:"original"`
	Upstream netip.AddrPort `json:"upstream"`
}

// An Answer is what a server says of a request.
type Answer struct {
	// Server is its pod's name, At what it is there: "app", or a port of the proxy, as "proxy
	// 15021".
	Server string `json:"server"`
	At     string `json:"at"`
	// Local and Peer are the ends of the connection, as the server sees it.
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
	// Via are the proxies, the caller's first.
	Via []Hop `json:"via,omitempty"`
}

// A Report is what the caller of a request says.
type Report struct {
	// Caller is its pod's name.
	Caller string `json:"caller"`
	// Local and Remote are the ends of the connection as the caller sees it; invalid if none came
	// about.
	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	// Answer is nil if there was none; then Error says why.
	Answer *Answer `json:"answer,omitempty"`
	Error  string  `json:"error,omitempty"`
}
