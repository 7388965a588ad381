package kernels

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
)

// A Kernel is one to boot.
type Kernel struct {
	// Version is the kernel's, without what the distribution's updates change: "5.10".
	Version string
	// Arch is the architecture, by the name that Debian and Go have in common.
	Arch string
	// Release names the distribution's release that the kernel is of.
	Release string
	// suites are where its package is.
	suites [2][2]string
}

// Kernels are those of Debian's releases, as they are made for clouds.
var Kernels = []Kernel{
	{"5.10", "amd64", "Debian 11", suitesOf("bullseye")},
	{"6.1", "amd64", "Debian 12", suitesOf("bookworm")},
	{"6.12", "amd64", "Debian 13", suitesOf("trixie")},
	{"6.12", "arm64", "Debian 13", suitesOf("trixie")},
}

func suitesOf(release string) [2][2]string {
	return [2][2]string{{"debian-security", release + "-security"}, {"debian", release}}
}

// String is the kernel's name: "5.10 amd64".
func (k Kernel) String() string { return k.Version + " " + k.Arch }

// pattern is what the names of its packages are like.
func (k Kernel) pattern() string { return fmt.Sprintf("linux-image-%s.*-cloud-%s", k.Version, k.Arch) }

// sources are where its package is.
func (k Kernel) sources() []debian.Source {
	var list []debian.Source
	for _, s := range k.suites {
		list = append(list, debian.Source{Archive: s[0], Suite: s[1], Arch: k.Arch})
	}
	return list
}
