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
		list, err := m.Index(ctx, s, pattern)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Package{}, err
		}
		found = append(found, list...)
	}
	return NewestOf(found, pattern)
}

// NewestOf returns the newest package in the list whose name matches the pattern.
func NewestOf(list []Package, pattern string) (Package, error) {
	found := slices.DeleteFunc(slices.Clone(list), func(p Package) bool {
		return !p.Match(pattern)
	})
	if len(found) == 0 {
		return Package{}, fmt.Errorf("no package matches %q", pattern)
	}
	return slices.MaxFunc(found, func(a, b Package) int {
		return CompareVersions(a.Version, b.Version)
	}), nil
}
