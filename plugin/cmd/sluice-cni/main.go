// Command sluice-cni is a chained CNI plugin that redirects the traffic of mesh pods to the proxy beside them, and leaves all others
// alone. A container runtime executes it; package plugin describes what it does, and package config how it is configured.
package main

import (
	"cmp"
	"os"
	"runtime"

	"github.com/sluice-mesh/sluice/plugin"
)

// version is set by the linker (-X main.version=...).
var version string

func main() {
	// Within a few milliseconds there is nothing to do at the same time, and to hand it from thread to thread costs a tenth of them.
	runtime.GOMAXPROCS(1)
	os.Exit(plugin.Main(cmp.Or(version, "(devel)")))
}
