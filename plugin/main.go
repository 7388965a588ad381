package plugin

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"

	"github.com/sluice-mesh/sluice/plugin/config"
)

// Main does what the environment and standard input ask for, as the CNI specification says, and returns the exit status. The version
// is that of the program. It may be called once: it takes standard input away.
func Main(version string) int {
	p := System()
	about := "CNI plugin sluice-cni " + version
	var said *overheard
	if os.Getenv("CNI_COMMAND") == "DEL" {
		said = overhear()
	}
	err := skel.PluginMainFuncsWithError(p.Funcs(), cni.PluginSupports(config.Versions()...), about)
	if err != nil && said != nil {
		// Package skel refuses what is no configuration before the verb sees it.
		err = p.forgotten(err, said)
	}
	if err == nil {
		return 0
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintf(os.Stderr, "print the error %q: %v\n", err, printErr)
	}
	return 1
}

// forgotten ends a DEL that was refused for what a runtime could not do better by asking again. The attachment is known, and of the
// configuration, as of any that is wrong, what can be used: where the records are.
func (p *Plugin) forgotten(refusal *types.Error, said *overheard) *types.Error {
	args := &skel.CmdArgs{
		ContainerID: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME"), Netns: os.Getenv("CNI_NETNS"),
		Args: os.Getenv("CNI_ARGS"), NetnsOverride: os.Getenv("CNI_NETNS_OVERRIDE"),
	}
	if keyOf(args).Validate() != nil {
		return refusal
	}
	fmt.Fprintf(p.Stderr, "DEL goes on although it is refused: %v\n", refusal)
	var err error
	if args.StdinData, err = said.wait(stdinPatience); err != nil {
		fmt.Fprintf(p.Stderr, "DEL goes on without its configuration: %v\n", err)
	}
	_ = p.guarded(p.Del)(args)
	return nil
}
