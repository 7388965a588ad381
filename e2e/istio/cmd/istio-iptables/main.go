// Command istio-iptables is Istio's command, as embedded in pilot-agent. Sluice's rules are
// compared with its rules.
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
