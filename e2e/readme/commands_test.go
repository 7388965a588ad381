package readme_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/readme"
)

func TestCommandsOfASection(t *testing.T) {
	const text = "# Title\n```\nno section\n```\n" +
		"## Before\n\n```\nother\n```\n" +
		"## Install\nText `inline`:\n\n```sh\n# comment\nfirst a \\\n  b   # why\n\n## no heading\nsecond\n```\n" +
		"### Below\n```\nthird\n```\n" +
		"## After\n```\nother\n```\n"
	want := []string{"first a \\\n  b   # why", "second", "third"}
	if got := readme.Commands(text, "Install"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := readme.Commands(text, "Missing"); len(got) > 0 {
		t.Errorf("commands of a missing section: %q, want none", got)
	}
}
