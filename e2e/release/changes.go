package release

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// changeLog is the path of the change log in the checkout.
const changeLog = ".github/CHANGELOG.md"

// A change is an entry of the annotation artifacthub.io/changes.
type change struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
}

// changesYAML returns the changes of the version for Artifact Hub, as YAML.
func (r *Release) changesYAML() (string, error) {
	log, err := os.ReadFile(filepath.Join(r.Source, changeLog))
	if err != nil {
		return "", fmt.Errorf("change log: %w", err)
	}
	entries := changesOf(string(log), r.Version)
	if len(entries) == 0 {
		entries = []change{{
			"changed", "The repository's change log lists no changes of " + r.Version,
		}}
	}
	text, err := yaml.Marshal(entries)
	return string(text), err
}

// changesOf returns the entries of a change log for a version. It omits the entries below headings
// that are not kinds of Artifact Hub.
func changesOf(log, version string) []change {
	kindOf := map[string]string{ // by the heading of a section
		"Added": "added", "Changed": "changed", "Deprecated": "deprecated", "Removed": "removed",
		"Fixed": "fixed", "Security": "security",
	}
	var entries []change
	kind, isVersion := "", false
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		text, isEntry := strings.CutPrefix(line, "* ")
		rest, isContinued := strings.CutPrefix(line, "  ")
		switch {
		case strings.HasPrefix(line, "## "):
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "## "), " ")
			kind, isVersion = "", name == version
		case strings.HasPrefix(line, "### "):
			kind = kindOf[strings.TrimPrefix(line, "### ")]
		case !isVersion || kind == "":
			// The line belongs to another version or to an unsupported section.
		case isEntry:
			entries = append(entries, change{kind, text})
		case isContinued && len(entries) > 0:
			entries[len(entries)-1].Description += " " + rest
		}
	}
	return entries
}
