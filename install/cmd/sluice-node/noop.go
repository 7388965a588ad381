package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"
)

// noop runs a CNI plugin without effect, and returns the exit status. Only ADD fails, because its
// caller expects redirection, and the pod must not start without it. The runtime retries with its
// current configuration.
func noop() int {
	succeed := func(*skel.CmdArgs) error { return nil }
	funcs := skel.CNIFuncs{
		Add: func(*skel.CmdArgs) error {
			return types.NewError(types.ErrTryAgainLater, "the plugin was removed from this node",
				"its replacement only allows sandboxes to be removed")
		},
		Check: succeed, Del: succeed, GC: succeed, Status: succeed,
	}
	about := "no-op CNI plugin in place of a removed one; sluice-node " + programVersion()
	err := skel.PluginMainFuncsWithError(funcs, cni.All, about)
	if err == nil {
		return 0
	}
	_ = err.Print() // there is nowhere else to report it
	return 1
}
