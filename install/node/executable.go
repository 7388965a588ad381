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

// executables compares executables with their sources. Contents are read once: the result is valid
// while the status of both files, which every write changes, is unchanged. It is not safe for
// concurrent use.
type executables struct {
	dir   string
	known map[pair]verdict
	sums  map[string]checksum // by path
}

type pair struct{ name, source string }

type verdict struct {
	name, source identity
	same         bool
}

// checksum is the checksum of a file's content.
type checksum struct {
	of  identity
	sum string
}

// identity changes with each change of a file's content: only the kernel sets the change time.
type identity struct {
	dev, ino uint64
	size     int64
	changed  syscall.Timespec
}

func newExecutables(dir string) *executables {
	return &executables{dir, map[pair]verdict{}, map[string]checksum{}}
}

// holds reports whether the executable exists and is identical to source.
func (x *executables) holds(name, source string) (bool, error) {
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
	known, ok := x.known[pair{name, source}]
	if !ok || known.name != here || known.source != there {
		same := false
		if here.size == there.size {
			if same, err = file.Same(path, source); err != nil {
				return false, err
			}
		}
		known = verdict{here, there, same}
		x.known[pair{name, source}] = known
	}
	return known.same && info.Mode().Perm() == executableMode, nil
}

// sum returns the checksum of a file in the format of the journal.
func (x *executables) sum(path string) (string, error) {
	here, _, err := identify(path)
	if err != nil {
		return "", err
	}
	if known, ok := x.sums[path]; ok && known.of == here {
		return known.sum, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	x.sums[path] = checksum{here, journal.Sum(data)}
	return x.sums[path].sum, nil
}

// judge classifies the executable: identical to source, one of the earlier versions, or another
// program.
func (x *executables) judge(name, source string, versions []string) Executable {
	if same, err := x.holds(name, source); err == nil && same {
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
	return Wrong
}

// exists reports whether there is an executable with the name.
func (x *executables) exists(name string) bool {
	info, err := os.Stat(filepath.Join(x.dir, name))
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// put makes the executable a copy of source. It reports whether this was a change, and whether
// another program removed or changed the executable before.
func (x *executables) put(name, source string) (changed, disturbed bool, err error) {
	disturbed = x.disturbed(name, source)
	if same, err := x.holds(name, source); err == nil && same {
		return false, false, nil
	}
	x.forget(name)
	if changed, err = file.Copy(filepath.Join(x.dir, name), source, executableMode); err == nil {
		// This records the identity of the file. If it has disappeared, the next check detects
		// that.
		_, _ = x.holds(name, source)
	}
	return changed, disturbed, err
}

// disturbed reports whether the executable is not the file that was last compared with source.
func (x *executables) disturbed(name, source string) bool {
	known, ok := x.known[pair{name, source}]
	if !ok {
		return false
	}
	here, _, err := identify(filepath.Join(x.dir, name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && here != known.name
}

func (x *executables) remove(name string) error {
	x.forget(name)
	_, err := file.Remove(filepath.Join(x.dir, name))
	return err
}

// forget prevents a change by the agent from being attributed to another program.
func (x *executables) forget(name string) {
	maps.DeleteFunc(x.known, func(p pair, _ verdict) bool { return p.name == name })
}

func identify(path string) (identity, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, nil, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return identity{stat.Dev, stat.Ino, stat.Size, stat.Ctim}, info, nil
}
