package debian

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	matching := slices.DeleteFunc(slices.Clone(packages), func(p Package) bool {
		return !p.Match(pattern)
	})
	if len(matching) == 0 {
		return Package{}, fmt.Errorf("no package matches %q", pattern)
	}
	return slices.MaxFunc(matching, func(a, b Package) int {
		return CompareVersions(a.Version, b.Version)
	}), nil
}
