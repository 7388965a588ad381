package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Dir is the directory of a machine that has not been started.
type Dir struct {
	path string
	lock *os.File
}

// NewDir creates a directory for a machine in parent, after calling [RemoveAbandoned].
func NewDir(parent string) (*Dir, error) {
	if err := RemoveAbandoned(parent); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, namePrefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	// The lock file has its final name only after it is locked, because RemoveAbandoned removes
	// directories whose lock file is not locked.
	unlocked := filepath.Join(path, lockFile+".new")
	if d.lock, err = os.Create(unlocked); err == nil {
		err = unix.Flock(int(d.lock.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(unlocked, filepath.Join(path, lockFile))
	}
	for _, name := range []string{LogDir, rootDir} {
		if err == nil {
			err = os.Mkdir(filepath.Join(path, name), 0o755)
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return d, nil
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Root returns the path of the machine's root directory.
func (d *Dir) Root() string { return filepath.Join(d.path, rootDir) }

// Remove removes the directory of a machine that will not be started.
func (d *Dir) Remove() error { return errors.Join(d.lock.Close(), os.RemoveAll(d.path)) }

// RemoveAbandoned removes the directories and cgroups of machines in parent whose directory no
// process has locked, for example because their monitor was killed.
func RemoveAbandoned(parent string) error {
	locks, err := filepath.Glob(filepath.Join(parent, namePrefix+"*", lockFile))
	if err != nil {
		return err
	}
	hierarchies, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, path := range locks {
		if err := removeAbandoned(path, hierarchies); err != nil {
			return fmt.Errorf("remove the remains of an earlier machine: %w", err)
		}
	}
	return nil
}

// removeAbandoned removes the machine's directory that contains a lock file, and the machine's
// cgroups, unless a process has locked the file.
func removeAbandoned(lockPath string, hierarchies []hierarchy) error {
	lock, err := os.Open(lockPath)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed it
		return nil
	} else if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	dir := filepath.Dir(lockPath)
	return errors.Join(removeCgroups(hierarchies, filepath.Base(dir)), os.RemoveAll(dir))
}
