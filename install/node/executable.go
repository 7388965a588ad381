package node

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

const executableMode = 0o755

// executables compares executables with their sources. It caches the results, which are valid while
// the identities of both files are unchanged. It is not safe for concurrent use.
type executables struct {
	dir         string
	comparisons map[pair]comparison
	sums        map[string]checksum // by path
}

// A pair is the name of an executable and the path of its source.
type pair struct{ name, source string }

type comparison struct {
	executable, source identity
	same               bool
}

type checksum struct {
	file identity
	sum  string
}

// An identity of a file changes with each change of the file's content, because it includes the
// change time, which only the kernel sets.
type identity struct {
	dev, ino uint64
	size     int64
	changed  syscall.Timespec
}

// isCopy reports whether the executable exists, is identical to source and has executableMode.
func (x *executables) isCopy(name, source string) (bool, error) {
	path := filepath.Join(x.dir, name)
	here, info, err := identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	there, _, err := identify(source)
	if err != nil {
		return false, err
	}
	c, ok := x.comparisons[pair{name, source}]
	if !ok || c.executable != here || c.source != there {
		same := false
		if here.size == there.size {
			if same, err = file.Same(path, source); err != nil {
				return false, err
			}
		}
		c = comparison{here, there, same}
		x.comparisons[pair{name, source}] = c
	}
	return c.same && info.Mode().Perm() == executableMode, nil
}

// isKnownCopy reports whether an executable is a copy of source according to the last comparison,
// and neither file has changed since. It reads and compares nothing.
func (x *executables) isKnownCopy(name, source string) bool {
	here, _, err := identify(filepath.Join(x.dir, name))
	there, _, sourceErr := identify(source)
	return err == nil && sourceErr == nil &&
		x.comparisons[pair{name, source}] == comparison{here, there, true}
}

// sum returns the checksum of a file in the format of the journal.
func (x *executables) sum(path string) (string, error) {
	here, _, err := identify(path)
	if err != nil {
		return "", err
	}
	if c, ok := x.sums[path]; ok && c.file == here {
		return c.sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum, err := journal.SumOf(f)
	if err != nil {
		return "", err
	}
	x.sums[path] = checksum{here, sum}
	return sum, nil
}

// classify returns the state of the executable: identical to source, one of the earlier versions,
// another program, or absent. The state is empty if the file cannot be read.
func (x *executables) classify(name, source string, versions []string) ExecutableState {
	if isCopy, err := x.isCopy(name, source); err == nil && isCopy {
		return Verified
	}
	if !x.exists(name) {
		return Absent
	}
	sum, err := x.sum(filepath.Join(x.dir, name))
	switch {
	case err != nil:
		return ""
	case slices.Contains(versions, sum):
		return Outdated
	}
	return OtherProgram
}

// exists reports whether there is an executable with the name.
func (x *executables) exists(name string) bool {
	info, err := os.Stat(filepath.Join(x.dir, name))
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// elsewhere returns the types of plugins if the directory contains no file with one of these names,
// and otherwise nil. The targets of links are not examined: they may exist only on the node.
func (x *executables) elsewhere(types []string) []string {
	entries, err := os.ReadDir(x.dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return slices.Contains(types, e.Name())
	}) {
		return nil
	}
	return types
}

// put makes the executable a copy of source. changed means that put has written the executable.
// foreignChange means that another program had removed or changed the executable.
func (x *executables) put(name, source string) (changed, foreignChange bool, err error) {
	foreignChange = x.hasForeignChange(name, source)
	if isCopy, err := x.isCopy(name, source); err == nil && isCopy {
		return false, false, nil
	}
	x.discardComparison(name)
	if changed, err = file.Copy(filepath.Join(x.dir, name), source, executableMode); err == nil {
		_, _ = x.isCopy(name, source) // stores the identity of the file
	}
	return changed, foreignChange, err
}

// hasForeignChange reports whether the executable was removed or changed since it was last compared
// with source. It returns false if it was never compared, or cannot be read.
func (x *executables) hasForeignChange(name, source string) bool {
	c, ok := x.comparisons[pair{name, source}]
	if !ok {
		return false
	}
	here, _, err := identify(filepath.Join(x.dir, name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && here != c.executable
}

// remove removes the executable with the name, if it exists.
func (x *executables) remove(name string) error {
	x.discardComparison(name)
	_, err := file.Remove(filepath.Join(x.dir, name))
	return err
}

// discardComparison discards the stored comparisons of an executable, so that a change by the agent
// is not attributed to another program.
func (x *executables) discardComparison(name string) {
	maps.DeleteFunc(x.comparisons, func(p pair, _ comparison) bool { return p.name == name })
}

func identify(path string) (identity, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, nil, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return identity{stat.Dev, stat.Ino, stat.Size, stat.Ctim}, info, nil
}
