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
	// Name is without the directory.
	Name string
	// Data is what it holds.
	Data []byte
	// Err is set where it could not be read.
	Err error
}

// A Choice is the configuration that a runtime uses.
type Choice struct {
	File
	// List is what the file holds; the list that means the same if the file is a plain
	// configuration.
	List *List
	// Plain says that the file is a plain configuration, not a list.
	Plain bool
}

// Skipped is a file that comes before the chosen one, or is the only one, and is not valid.
type Skipped struct {
	Name   string
	Reason error
}

func (s Skipped) String() string { return fmt.Sprintf("%s: %v", s.Name, s.Reason) }

// ErrNone is the error of a directory in which there is no valid configuration, or not the one that
// was named.
var ErrNone = errors.New("no valid network configuration")

// IsConfiguration reports whether runtimes look at files of this name.
func IsConfiguration(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// Discover returns the configuration that a runtime uses of a directory with these files: the first
// valid one in the order of the names, or the one with the given name, where .conf and .conflist
// are the same. Files that were passed over are returned as well: CRI-O leaves them out, and
// containerd refuses the whole directory for one of them, as long as it comes before a valid one.
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

func candidates(files []File, named string) []File {
	var found []File
	for _, f := range files {
		if IsConfiguration(f.Name) && (named == "" || f.Name == named || f.Name == sibling(named)) {
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

// sibling is the other name that a named configuration may have: an installer may write a list or
// turn it into one.
func sibling(named string) string {
	if stem, ok := strings.CutSuffix(named, ".conf"); ok {
		return stem + ".conflist"
	}
	if stem, ok := strings.CutSuffix(named, ".conflist"); ok {
		return stem + ".conf"
	}
	return named
}

// Read judges one file as the runtimes do: the extension alone says whether it is a list. The error
// says why it is not valid.
func Read(f File) (Choice, error) {
	if f.Err != nil {
		return Choice{}, f.Err
	}
	if filepath.Ext(f.Name) == ".conflist" {
		list, err := Parse(f.Data)
		return Choice{File: f, List: list}, err
	}
	list, err := FromPlain(f.Data)
	return Choice{File: f, List: list, Plain: true}, err
}
