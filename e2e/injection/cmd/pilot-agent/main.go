// Command pilot-agent replaces Istio's pilot-agent in an image. For the command "proxy sidecar",
// which would start Envoy, it runs the sample application's proxy. For all other commands, such as
// istio-iptables, wait and request, it runs Istio's pilot-agent.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

// The programs, by their paths in the image.
const (
	istioAgent  = "/usr/local/bin/istio/pilot-agent"
	sampleProxy = "/usr/local/bin/mesh"
)

func main() {
	argv := command(os.Args[1:], os.Getenv("ISTIO_META_INTERCEPTION_MODE"))
	err := syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(os.Stderr, "pilot-agent: run %s: %v\n", argv[0], err)
	os.Exit(1)
}

// command returns the command to run for the arguments of pilot-agent. mode is the interception
// mode in Istio's notation, such as TPROXY.
func command(args []string, mode string) []string {
	if !slices.Equal(args[:min(len(args), 2)], []string{"proxy", "sidecar"}) {
		return append([]string{istioAgent}, args...)
	}
	argv := []string{sampleProxy, "proxy", "sidecar"}
	if mode == "TPROXY" {
		argv = append(argv, "-transparent")
	}
	return argv
}
