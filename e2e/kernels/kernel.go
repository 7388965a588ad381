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
	// suites contains the archives and suites that contain the kernel's package, as pairs.
	suites [2][2]string
}

// Kernels contains the cloud kernels of Debian's releases.
var Kernels = []Kernel{
	{"5.10", "amd64", "Debian 11", suitesOf("bullseye")},
	{"6.1", "amd64", "Debian 12", suitesOf("bookworm")},
	{"6.12", "amd64", "Debian 13", suitesOf("trixie")},
	{"6.12", "arm64", "Debian 13", suitesOf("trixie")},
}

// suitesOf returns the archives and suites of a Debian release.
func suitesOf(release string) [2][2]string {
	return [2][2]string{{"debian-security", release + "-security"}, {"debian", release}}
}

// String returns the kernel's name, such as "5.10 amd64".
func (k Kernel) String() string { return k.Version + " " + k.Arch }

// pattern returns the pattern of the package's name.
func (k Kernel) pattern() string {
	return fmt.Sprintf("linux-image-%s.*-cloud-%s", k.Version, k.Arch)
}

// sources returns the sources of the package.
func (k Kernel) sources() []debian.Source {
	var sources []debian.Source
	for _, s := range k.suites {
		sources = append(sources, debian.Source{Archive: s[0], Suite: s[1], Arch: k.Arch})
	}
	return sources
}
