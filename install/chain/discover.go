package chain

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A File is a file of the configuration directory.
type File struct {
	// Name is the file name without the directory.
	Name string
	// Data is the content.
	Data []byte
	// Err is the read error, or nil.
	Err error
}

// A Choice is the configuration that a runtime uses.
type Choice struct {
	File
	// List is the content of the file, or the equivalent list of a single-plugin configuration.
	List *List
	// SinglePlugin is set if the file is a single-plugin configuration (.conf), not a configuration
	// list (.conflist).
	SinglePlugin bool
}

// Skipped is an invalid file that comes before the chosen file in the runtime's order of
// preference. If no file is valid, all files are skipped.
type Skipped struct {
	Name   string
	Reason error
}

func (s Skipped) String() string { return fmt.Sprintf("%s: %v", s.Name, s.Reason) }

// ErrNone is the error for a directory without a valid configuration, or without the named one.
var ErrNone = errors.New("no valid network configuration")

// IsConfiguration reports whether runtimes read files with this name.
func IsConfiguration(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// Discover returns the configuration that a runtime uses from a directory with these files. If
// named is empty, this is the first valid file in the order of names; otherwise it is the file with
// the name, where .conf and .conflist are equivalent. Discover also returns the skipped files:
// CRI-O skips them, and containerd rejects the whole directory if an invalid file sorts before a
// valid one.
func Discover(files []File, named string) (Choice, []Skipped, error) {
	var skipped []Skipped
	for _, f := range candidates(files, named) {
		choice, err := Read(f)
		if err == nil {
			return choice, skipped, nil
		}
		skipped = append(skipped, Skipped{f.Name, err})
	}
	if named != "" {
		return Choice{}, skipped, fmt.Errorf("%w named %s", ErrNone, named)
	}
	return Choice{}, skipped, ErrNone
}

// candidates returns the files from which a runtime selects, in its order of preference.
func candidates(files []File, named string) []File {
	var found []File
	for _, f := range files {
		if IsConfiguration(f.Name) && (named == "" || f.Name == named || f.Name == otherNameOf(named)) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b File) int {
		if a.Name == named {
			return -1
		}
		if b.Name == named {
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found
}

// otherNameOf returns the other name that a named configuration may have, because an installer may
// write either form. It returns named if there is no other name.
func otherNameOf(named string) string {
	if stem, ok := strings.CutSuffix(named, ".conf"); ok {
		return stem + ".conflist"
	}
	if stem, ok := strings.CutSuffix(named, ".conflist"); ok {
		return stem + ".conf"
	}
	return named
}

// Read parses a file like the runtimes: only the extension determines whether it is a list. The
// error is the reason why the file is invalid, or f.Err.
func Read(f File) (Choice, error) {
	if f.Err != nil {
		return Choice{}, f.Err
	}
	if filepath.Ext(f.Name) == ".conflist" {
		list, err := Parse(f.Data)
		return Choice{File: f, List: list}, err
	}
	list, err := FromSinglePlugin(f.Data)
	return Choice{File: f, List: list, SinglePlugin: true}, err
}
