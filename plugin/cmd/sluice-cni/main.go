// Command sluice-cni is a chained CNI plugin that redirects the traffic of the pods of a mesh to
// their proxies, and leaves all other pods alone. A container runtime executes it. Package plugin
// describes what it does, package config its configuration.
//
//go:debug updatemaxprocs=0
package main

import (
	"cmp"
	"os"

	"github.com/sluice-mesh/sluice/plugin"
	_ "github.com/sluice-mesh/sluice/plugin/faststart" // an execution takes only milliseconds
)

// version is set by the linker (-X main.version=...).
var version string

func main() {
	os.Exit(plugin.Main(cmp.Or(version, "(devel)")))
}
