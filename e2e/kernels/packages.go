package kernels

import (
	"context"
	_ "embed" // for packages.txt
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
)

// packagesFile is the name of the file in e2e/kernels that lists the packages to use.
const packagesFile = "packages.txt"

//go:embed packages.txt
var pinnedPackages string

// programs contains the Debian packages that are unpacked in every machine.
var programs = []string{
	"iptables", "nftables", "busybox-static", "netbase", "libc6", "libip4tc2", "libip6tc2",
	"libmnl0", "libnetfilter-conntrack3",
	"libnfnetlink0", "libnftnl11", "libxtables12", "libedit2", "libjansson4", "libnftables1",
	"libgmp10", "libbsd0", "libmd0", "libtinfo6",
}

// programsSuite is the release of these packages.
const programsSuite = "bookworm"

// Pin finds the newest packages, and writes their list to packagesFile in dir.
func Pin(ctx context.Context, m debian.Mirror, dir string) error {
	var newest []debian.Package
	archDone := map[string]bool{}
	for _, k := range Kernels {
		p, err := m.Newest(ctx, k.sources(), k.pattern())
		if err != nil {
			return err
		}
		newest = append(newest, p)
		if archDone[k.Arch] {
			continue
		}
		archDone[k.Arch] = true
		index, err := m.Index(ctx, programSources(k.Arch)[0], programs...)
		if err != nil {
			return err
		}
		for _, name := range programs {
			p, err := debian.NewestOf(index, name)
			if err != nil {
				return err
			}
			newest = append(newest, p)
		}
	}
	text := debian.FormatList("Packages of e2e/kernels with their checksums, written by: "+
		"go run -C e2e ./kernels/cmd/kernels -pin", newest)
	return os.WriteFile(filepath.Join(dir, packagesFile), []byte(text), 0o644)
}

// programSources returns the package lists with the programs.
func programSources(arch string) []debian.Source {
	return []debian.Source{{Archive: "debian", Suite: programsSuite, Arch: arch}}
}

// A fetcher downloads packages in the pinned versions. If the mirror no longer has a version, it
// downloads the newest one.
type fetcher struct {
	mirror debian.Mirror
	pinned []debian.Package
	logf   func(format string, args ...any)
}

// An UnavailableError reports that a package cannot be downloaded.
type UnavailableError struct{ Err error }

// Error implements error.
func (e *UnavailableError) Error() string { return "package not available: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// fetch downloads the package whose name matches the pattern, and returns the path of its file and
// the package in the downloaded version.
func (f *fetcher) fetch(
	ctx context.Context, pattern string, sources []debian.Source,
) (string, debian.Package, error) {
	i := slices.IndexFunc(f.pinned, func(p debian.Package) bool {
		return p.Arch == sources[0].Arch && p.Match(pattern)
	})
	if i < 0 {
		return "", debian.Package{}, fmt.Errorf("no package %s for %s in %s", pattern,
			sources[0].Arch, packagesFile)
	}
	p := f.pinned[i]
	file, err := f.mirror.Fetch(ctx, p)
	if err == nil {
		return file, p, nil
	}
	if !errors.Is(err, debian.ErrNotFound) {
		return "", p, &UnavailableError{err}
	}
	newest, findErr := f.mirror.Newest(ctx, sources, pattern)
	if findErr != nil {
		return "", p, &UnavailableError{errors.Join(err, findErr)}
	}
	f.logf("%s is no longer available: using %s", p, newest)
	if file, err = f.mirror.Fetch(ctx, newest); err != nil {
		return "", newest, &UnavailableError{err}
	}
	return file, newest, nil
}
