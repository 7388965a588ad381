// Package debian fetches Debian packages without Debian's tools and without installing anything.
package debian

import (
	"encoding/csv"
	"fmt"
	"path"
	"strings"
)

// A Package is a version of a Debian package for an architecture.
type Package struct {
	// Source is the package list that contains the package.
	Source
	// Name and Version identify the package, such as "linux-image-6.1.0-56-cloud-amd64" and
	// "6.1.192-2".
	Name, Version string
	// Path is the path of the .deb file below the directory Archive.
	Path string
	// SHA256 is the checksum of the file, in hexadecimal.
	SHA256 string
}

// A Source identifies a package list on a mirror. It is not a source package of Debian.
type Source struct {
	// Archive is a directory of the mirror: "debian" or "debian-security".
	Archive string
	// Suite is a release, such as "bookworm" or "bookworm-security".
	Suite string
	// Arch is Debian's name of an architecture, such as "amd64".
	Arch string
}

// String returns the name of the package, its version and its source.
func (p Package) String() string {
	return fmt.Sprintf("%s %s (%s/%s, %s)", p.Name, p.Version, p.Archive, p.Suite, p.Arch)
}

// Match reports whether the package's name matches the pattern (path.Match).
func (p Package) Match(pattern string) bool {
	matches, err := path.Match(pattern, p.Name)
	return matches && err == nil
}

// line formats the package as a line of a list, with fields separated by spaces.
func (p Package) line() string {
	return strings.Join([]string{p.Archive, p.Suite, p.Arch, p.Name, p.Version, p.SHA256, p.Path},
		" ")
}

// FormatList formats packages, one per line, after a comment.
func FormatList(comment string, packages []Package) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", comment)
	for _, p := range packages {
		text.WriteString(p.line() + "\n")
	}
	return text.String()
}

// ParseList parses the output of FormatList.
func ParseList(text string) ([]Package, error) {
	list := csv.NewReader(strings.NewReader(text))
	list.Comma, list.Comment = ' ', '#'
	list.FieldsPerRecord = 7 // as Package.line writes them
	records, err := list.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("list of packages, want the fields "+
			"archive suite arch name version sha256 path: %w", err)
	}
	var packages []Package
	for _, f := range records {
		packages = append(packages, Package{
			Source: Source{Archive: f[0], Suite: f[1], Arch: f[2]},
			Name:   f[3], Version: f[4], SHA256: f[5], Path: f[6],
		})
	}
	return packages, nil
}
