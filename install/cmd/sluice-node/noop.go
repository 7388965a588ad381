package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"
)

// noop is a CNI plugin without effect. Only ADD fails, because its caller expects a plugin that
// redirects, and the pod must not start without it. The runtime retries with its current
// configuration. noop returns the exit status.
func noop() int {
	fine := func(*skel.CmdArgs) error { return nil }
	funcs := skel.CNIFuncs{
		Add: func(*skel.CmdArgs) error {
			return types.NewError(types.ErrTryAgainLater, "the plugin was removed from this node",
				"its replacement only allows sandboxes to be removed")
		},
		Check: fine, Del: fine, GC: fine, Status: fine,
	}
	about := "no-op CNI plugin in place of a removed one; sluice-node " +
		programVersion()
	err := skel.PluginMainFuncsWithError(funcs, cni.All, about)
	if err == nil {
		return 0
	}
	_ = err.Print() // there is nowhere else to report it
	return 1
}
