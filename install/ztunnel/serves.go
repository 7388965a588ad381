package ztunnel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Serves reports whether a ztunnel serves a network namespace: whether there are listeners at its
// three ports for captured connections and HBONE. Such a ztunnel need not be connected to the
// agent, for example because the agent was restarted, or because it is still connected to
// istio-cni.
//
// Before the containers of a pod start, only ztunnel opens listeners there. Later a process of the
// pod can open them too, and then captures the traffic of its own pod.
func Serves(ns *netns.NS) (bool, error) {
	var h *netlink.Handle
	err := ns.Do(func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_INET_DIAG)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("open a socket for the list of sockets: %w", err)
	}
	defer h.Close()
	ports := map[uint16]bool{
		rules.DefaultProxyPort: true, rules.DefaultInboundCapturePort: true, rules.DefaultTunnelPort: true,
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // a listener of IPv6 may have IPv4 too
		list, err := h.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return false, fmt.Errorf("list the sockets: %w", err)
		}
		for _, s := range list {
			if s.State == netlink.TCP_LISTEN {
				delete(ports, s.ID.SourcePort)
			}
		}
	}
	return len(ports) == 0, nil
}
