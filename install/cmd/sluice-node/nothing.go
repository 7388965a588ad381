package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"
)

// nothing is the CNI plugin that does nothing, successfully, but for ADD: whoever still calls that
// means a plugin which redirects, and must not get a pod without. The runtime tries again, by the
// configuration that it has then. It returns the exit status.
func nothing() int {
	fine := func(*skel.CmdArgs) error { return nil }
	funcs := skel.CNIFuncs{
		Add: func(*skel.CmdArgs) error {
			return types.NewError(types.ErrTryAgainLater, "the plugin is gone from this node",
				"what is in its place only lets sandboxes be removed")
		},
		Check: fine, Del: fine, GC: fine, Status: fine,
	}
	about := "CNI plugin that does nothing, in the place of one that is gone; sluice-node " + programVersion()
	err := skel.PluginMainFuncsWithError(funcs, cni.All, about)
	if err == nil {
		return 0
	}
	_ = err.Print() // there is nowhere else to report it
	return 1
}
