package plugin

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"

	"github.com/sluice-mesh/sluice/plugin/config"
)

// Main runs the verb that the environment and standard input specify, as defined by the CNI
// specification, and returns the exit status. version is the version of the program. A process may
// call Main only once, because Main reads standard input to its end.
func Main(version string) int {
	p := System()
	about := "CNI plugin sluice-cni " + version
	var input *stdinTee
	var err *types.Error
	switch os.Getenv("CNI_COMMAND") {
	case "ADD", "CHECK", "STATUS", "GC":
		err = boundStdin()
	case "DEL":
		input = teeStdin()
		hideFIFO()
	}
	if err == nil {
		err = skel.PluginMainFuncsWithError(p.Funcs(), cni.PluginSupports(config.Versions()...), about)
	}
	if err != nil && input != nil {
		// Package skel refuses an invalid configuration before it calls the verb.
		err = p.completeDel(err, input)
	}
	if err == nil {
		return 0
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintf(os.Stderr, "print the error %q: %v\n", err, printErr)
	}
	return 1
}

// hideFIFO removes CNI_NETNS from the environment if it names a FIFO, as if the namespace no longer
// existed: package skel would open the file after DEL, and wait for a writer.
func hideFIFO() {
	info, err := os.Stat(os.Getenv("CNI_NETNS"))
	if err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		_ = os.Unsetenv("CNI_NETNS") // DEL continues with the file if this fails
	}
}

// completeDel runs a DEL that package skel has refused. Otherwise the runtime would repeat the same
// call forever. The attachment is read from the environment, and the run directory from the valid
// part of the configuration. If the environment does not name a valid attachment, there is nothing
// to remove, and completeDel returns the refusal.
func (p *Plugin) completeDel(refusal *types.Error, input *stdinTee) *types.Error {
	args := &skel.CmdArgs{
		ContainerID: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME"),
		Netns: os.Getenv("CNI_NETNS"),
		Args:  os.Getenv("CNI_ARGS"), NetnsOverride: os.Getenv("CNI_NETNS_OVERRIDE"),
	}
	if attachmentKey(args).Validate() != nil {
		return refusal
	}
	fmt.Fprintf(p.Stderr, "DEL continues although it was rejected: %v\n", refusal)
	var err error
	if args.StdinData, err = input.wait(); err != nil {
		fmt.Fprintf(p.Stderr, "DEL continues without its configuration: %v\n", err)
	}
	_ = p.withoutPanics(p.Del)(args)
	return nil
}
