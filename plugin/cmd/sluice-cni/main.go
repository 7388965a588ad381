// Command sluice-cni is a chained CNI plugin that redirects the traffic of mesh pods to the proxy beside them, and leaves all others
// alone. A container runtime executes it; package plugin describes what it does, and package config how it is configured.
//
//go:debug updatemaxprocs=0
package main

import (
	"cmp"
	"os"

	"github.com/sluice-mesh/sluice/plugin"
	_ "github.com/sluice-mesh/sluice/plugin/brief" // a verb is done in milliseconds
)

// version is set by the linker (-X main.version=...).
var version string

func main() {
	os.Exit(plugin.Main(cmp.Or(version, "(devel)")))
}
