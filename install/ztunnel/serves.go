package ztunnel

import (
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
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
		// No list of sockets is kept: a pod may have hundreds of thousands.
		for s, err := range sockdiag.List(rules.TCP, sockdiag.Listening) {
			if err != nil {
				return err
			}
			if delete(missing, s.Local.Port()); len(missing) == 0 {
				return nil
			}
		}
		return nil
	})
	return err == nil && len(missing) == 0, err
}
