package debian

import (
	"context"
	"errors"
	"fmt"

	"pault.ag/go/debian/version"
)

// Newest returns the newest package in any of the sources whose name matches the pattern
// (path.Match syntax). It skips sources that the mirror does not have.
func (m Mirror) Newest(ctx context.Context, sources []Source, pattern string) (Package, error) {
	var found []Package
	for _, s := range sources {
		packages, err := m.Index(ctx, s, pattern)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Package{}, err
		}
		found = append(found, packages...)
	}
	return NewestOf(found, pattern)
}

// NewestOf returns the newest package whose name matches the pattern.
func NewestOf(packages []Package, pattern string) (Package, error) {
	var newest Package
	var newestVersion version.Version
	for _, p := range packages {
		if !p.Match(pattern) {
			continue
		}
		v, err := version.Parse(p.Version)
		if err != nil {
			return Package{}, fmt.Errorf("package %s: version %q: %w", p.Name, p.Version, err)
		}
		if newest.Name == "" || version.Compare(v, newestVersion) > 0 {
			newest, newestVersion = p, v
		}
	}
	if newest.Name == "" {
		return Package{}, fmt.Errorf("no package matches %q", pattern)
	}
	return newest, nil
}
