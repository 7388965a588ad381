// Command istio-iptables is the command istio-iptables of Istio's pilot-agent. Tests compare
// Sluice's rules with the rules that it writes.
package main

import (
	"os"

	"istio.io/istio/pkg/log"
	"istio.io/istio/tools/istio-iptables/pkg/cmd"
)

func main() {
	if cmd.GetCommand(log.DefaultOptions()).Execute() != nil {
		os.Exit(1)
	}
}
