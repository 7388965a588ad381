// Command dns is CoreDNS with only the plugins that the Corefile of a cluster names. CoreDNS's own
// main package also links the client libraries of three cloud providers.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// A query passes the plugins in this order.
	dnsserver.Directives = []string{
		"health", "ready", "errors", "log", "loadbalance", "cache", "template", "hosts",
		"kubernetes",
	}
	coremain.Run()
}
