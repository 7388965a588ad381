package ztunnel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Serves reports whether a ztunnel serves a network namespace, which means that the namespace
// contains listeners at ztunnel's three ports for captured connections and HBONE. The ztunnel need
// not be connected to the agent: the agent may have been restarted, or ztunnel may still be
// connected to istio-cni.
//
// Before the containers of a pod start, only ztunnel opens listeners in its network namespace.
// Later a process of the pod can open them too. The result is then true although no ztunnel serves
// the pod; that process then captures only the traffic of its own pod.
func Serves(ns *netns.NS) (serves bool, err error) {
	missing := map[uint16]bool{
		rules.DefaultProxyPort: true, rules.DefaultInboundCapturePort: true,
		rules.DefaultTunnelPort: true,
	}
	err = ns.Do(func() error {
		// Both families are listed, because an IPv6 listener may accept IPv4 connections too.
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if err := removeListeners(family, missing); err != nil {
				return fmt.Errorf("list the sockets: %w", err)
			}
		}
		return nil
	})
	return err == nil && len(missing) == 0, err
}

// maxListings is the maximum number of times that the listeners are listed if their number changes
// meanwhile. Each list removes the ports that it contains, so that all lists together suffice.
const maxListings = 3

// removeListeners removes the ports of TCP listeners from ports. It keeps no list of sockets: a pod
// may have hundreds of thousands. The calling thread is in the network namespace.
func removeListeners(family uint8, ports map[uint16]bool) error {
	for range maxListings {
		if len(ports) == 0 {
			return nil
		}
		err := listListeners(family, func(port uint16) (more bool) {
			delete(ports, port)
			return len(ports) > 0
		})
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// listListeners calls visit with the port of each TCP listener until it returns false.
func listListeners(family uint8, visit func(port uint16) (more bool)) error {
	// A socket of its own discards the messages after the last one that is visited.
	socket, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return err
	}
	defer socket.Close()
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Socket: socket}}
	request.AddRawData(diagRequest(family))
	return request.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
		// struct inet_diag_msg of linux/inet_diag.h has the source port at offset 4.
		return len(msg) < 6 || visit(binary.BigEndian.Uint16(msg[4:]))
	})
}

// stateListen is TCP_LISTEN of the kernel's net/tcp_states.h.
const stateListen = 10

// diagRequest returns a struct inet_diag_req_v2 of linux/inet_diag.h for the TCP listeners. The
// kernel then does not visit other sockets.
func diagRequest(family uint8) []byte {
	request := make([]byte, 56)
	request[0], request[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], 1<<stateListen)
	return request
}
