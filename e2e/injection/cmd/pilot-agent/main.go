// Command pilot-agent stands in an image for Istio's, of which the real one is in the same
// directory: only for "proxy", which would start Envoy, the sample application's proxy runs. All
// else that injected containers ask for (istio-iptables, wait, request) is the real one's.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

// What is run, by its place in the image.
const (
	realAgent = "/usr/local/bin/istio/pilot-agent"
	sample    = "/usr/local/bin/mesh"
)

func main() {
	argv := command(os.Args[1:], os.Getenv("ISTIO_META_INTERCEPTION_MODE"))
	err := syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(os.Stderr, "pilot-agent: run %s: %v\n", argv[0], err)
	os.Exit(1)
}

// command is what to run in place of pilot-agent with arguments. The mode is Istio's word for how
// inbound connections come.
func command(args []string, mode string) []string {
	if !slices.Equal(args[:min(len(args), 2)], []string{"proxy", "sidecar"}) {
		return append([]string{realAgent}, args...)
	}
	argv := []string{sample, "proxy", "sidecar"}
	if mode == "TPROXY" {
		argv = append(argv, "-transparent")
	}
	return argv
}
