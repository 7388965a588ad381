package kernels

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
)

// A Kernel is a kernel to boot.
type Kernel struct {
	// Version is the major and minor version, such as "5.10".
	Version string
	// Arch is the architecture: "amd64" or "arm64".
	Arch string
	// Release is the distribution's release, such as "Debian 11".
	Release string
	// codename is the distribution's name of the release, such as "bullseye".
	codename string
}

// Kernels contains the tested kernels, Debian's cloud kernels.
var Kernels = []Kernel{
	{"5.10", "amd64", "Debian 11", "bullseye"},
	{"6.1", "amd64", "Debian 12", "bookworm"},
	{"6.12", "amd64", "Debian 13", "trixie"},
	{"6.12", "arm64", "Debian 13", "trixie"},
}

// String returns the kernel's name, such as "5.10 amd64".
func (k Kernel) String() string { return k.Version + " " + k.Arch }

// pattern returns a pattern (path.Match) for the name of the kernel's package.
func (k Kernel) pattern() string {
	return fmt.Sprintf("linux-image-%s.*-cloud-%s", k.Version, k.Arch)
}

// sources returns the package lists that may contain the kernel's package.
func (k Kernel) sources() []debian.Source {
	return []debian.Source{
		{Archive: "debian-security", Suite: k.codename + "-security", Arch: k.Arch},
		{Archive: "debian", Suite: k.codename, Arch: k.Arch},
	}
}
