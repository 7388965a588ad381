// Command istio-iptables is Istio's, as pilot-agent embeds it: the program with which Sluice's
// rules are compared.
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
