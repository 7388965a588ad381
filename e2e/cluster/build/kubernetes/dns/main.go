// Command dns is CoreDNS with the plugins that a cluster's Corefile names. Its own main links the
// clients of three clouds too.
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
	// In the order in which a query passes them.
	dnsserver.Directives = []string{
		"health", "ready", "errors", "log", "loadbalance", "cache", "template", "hosts",
		"kubernetes",
	}
	coremain.Run()
}
