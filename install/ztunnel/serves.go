package ztunnel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
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
func Serves(ns *netns.NS) (bool, error) {
	h, err := ns.Netlink(unix.NETLINK_INET_DIAG)
	if err != nil {
		return false, err
	}
	defer h.Close()
	missing := map[uint16]bool{
		rules.DefaultProxyPort: true, rules.DefaultInboundCapturePort: true,
		rules.DefaultTunnelPort: true,
	}
	// Both families are listed, because an IPv6 listener may accept IPv4 connections too.
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := h.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return false, fmt.Errorf("list the sockets: %w", err)
		}
		for _, s := range sockets {
			if s.State == netlink.TCP_LISTEN {
				delete(missing, s.ID.SourcePort)
			}
		}
	}
	return len(missing) == 0, nil
}
