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
	// err is the error of opening the namespace. Not every verb needs the namespace.
	err error
}

// openSandbox opens the namespace that the runtime names. It refuses the host's namespace, whose
// traffic must not be redirected. If the namespace cannot be opened, sandbox.err is set.
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

// allowsHostNamespace reports whether the caller allows the namespace of the host: see package
// skel.
func allowsHostNamespace(args *skel.CmdArgs) bool {
	return args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "true")
}
