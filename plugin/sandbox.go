package plugin

import (
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A sandbox is the network namespace of a pod, which a verb opens once.
type sandbox struct {
	ns *netns.NS
	// err is the error of opening the namespace, if it failed. Not every verb needs the namespace.
	err error
}

// openSandbox opens the namespace in CNI_NETNS. If the namespace cannot be opened, sandbox.err is
// set and the error is nil. The host's namespace, whose traffic must not be redirected, is an error
// unless the runtime allows it.
func openSandbox(args *skel.CmdArgs) (sandbox, error) {
	ns, err := netns.Open(args.Netns)
	if err != nil {
		return sandbox{err: cniError(types.ErrInvalidNetNS,
			"the network namespace of the pod cannot be opened", err)}, nil
	}
	if isHost(ns) && !allowsHostNamespace(args) {
		_ = ns.Close()
		return sandbox{}, cniError(types.ErrInvalidNetNS,
			"CNI_NETNS is the network namespace of the host", nil)
	}
	return sandbox{ns: ns}, nil
}

func (s sandbox) close() { _ = s.ns.Close() }

// isHost reports whether the namespace is the one that the plugin runs in.
func isHost(ns *netns.NS) bool { return ns.ID() == (*netns.NS)(nil).ID() }

// allowsHostNamespace reports whether the runtime allows the namespace of the host, with a value of
// CNI_NETNS_OVERRIDE that package skel accepts.
func allowsHostNamespace(args *skel.CmdArgs) bool {
	return args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "true")
}
