// Command dns is CoreDNS with the plugins in a cluster's Corefile. The main package of CoreDNS also
// links clients of three clouds.
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
	// In the order in which they handle a query.
	dnsserver.Directives = []string{
		"health", "ready", "errors", "log", "loadbalance", "cache", "template", "hosts",
		"kubernetes",
	}
	coremain.Run()
}
