package validation

import (
	"errors"
	"net/netip"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// foundSockets contains the facts about the sockets of the namespace that a validation needs. It
// does not contain the sockets: a process can open any number.
type foundSockets struct {
	listeners map[listener]bool
	// accepted is the local address of the socket that accepted the caller's connection. It is
	// invalid if there is no such socket.
	accepted netip.AddrPort
}

// A listener is a listening TCP socket or an unconnected UDP socket.
type listener struct {
	protocol rules.Protocol
	port     uint16
}

// findSockets finds the listeners of the namespace, and the socket that accepted the connection of
// the caller, unless the caller is invalid. It needs no privilege, but a kernel with
// CONFIG_INET_DIAG.
func findSockets(ns *netns.NS, caller netip.AddrPort) (foundSockets, error) {
	found := foundSockets{listeners: map[listener]bool{}}
	err := ns.Do(func() error {
		for _, protocol := range []rules.Protocol{rules.TCP, rules.UDP} {
			for s, err := range sockdiag.List(protocol, sockdiag.AnyState) {
				if err != nil {
					return err
				}
				switch {
				case s.State == sockdiag.Listen, protocol == rules.UDP && s.State == sockdiag.Close:
					found.listeners[listener{protocol, s.Local.Port()}] = true
				case protocol == rules.TCP && s.Peer == caller && !found.accepted.IsValid():
					found.accepted = s.Local
				}
			}
		}
		return nil
	})
	return found, err
}

// isListening reports whether a socket listens on the port.
func (s foundSockets) isListening(protocol rules.Protocol, port uint16) bool {
	return s.listeners[listener{protocol, port}]
}

// translatedDestination returns the destination after NAT of the caller's datagram to the address
// to, according to conntrack. It needs CAP_NET_ADMIN.
func translatedDestination(
	ns *netns.NS, caller, to netip.AddrPort,
) (destination netip.AddrPort, err error) {
	original := conntrack.Tuple{Source: caller, Destination: to}
	err = ns.Do(func() error {
		for e, err := range conntrack.List() {
			if err != nil {
				return err
			}
			if e.Protocol == rules.UDP && e.Original == original {
				destination = e.Reply.Source
				return nil
			}
		}
		return errors.New("conntrack has no entry for the datagram")
	})
	return destination, err
}
