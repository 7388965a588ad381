package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Lock prevents other processes of Sluice from changing the node's files. The kernel releases the
// lock when the process ends.
type Lock struct {
	f        *os.File
	readOnly error // see ReadOnly
}

const (
	lockName = "lock"
	// lockPoll is the interval between attempts to acquire the lock. Other processes hold it for
	// a few milliseconds.
	lockPoll = 10 * time.Millisecond
)

// Acquire acquires the lock of a state directory, which it creates if it does not exist. It waits
// for the lock at most until ctx is done. The error then names the process that last acquired the
// lock. On a read-only file system, Acquire needs an existing lock file; see [Lock.ReadOnly].
func Acquire(ctx context.Context, dir string) (*Lock, error) {
	path := filepath.Join(dir, lockName)
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		f, readOnly, err := open(path)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // the last holder of the lock has also removed the directory
		}
		if err != nil {
			return nil, err
		}
		if err := lockFile(ctx, f, unix.LOCK_EX); err != nil {
			holder, _ := file.ReadRegular(path)
			err = fmt.Errorf("lock %s, last acquired by process %s: %w", path,
				strings.TrimSpace(string(holder)), err)
			return nil, errors.Join(err, f.Close())
		}
		if isAt(f, path) {
			// The process ID is only for error messages of other processes, so errors are ignored.
			if err := f.Truncate(0); err == nil {
				_, _ = fmt.Fprintln(f, os.Getpid())
			}
			return &Lock{f, readOnly}, nil
		}
		// The last holder has removed the lock file. The lock of a removed file does not exclude
		// other processes.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// open opens a file to be locked, and creates it if it does not exist. On a read-only file system
// it opens an existing file, and returns the error of the file system as readOnly.
func open(path string) (f *os.File, readOnly, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if !file.IsReadOnly(err) {
		return f, nil, err
	}
	existing, openErr := os.Open(path)
	if openErr != nil {
		return nil, nil, err
	}
	return existing, err, nil
}

// lockFile acquires a lock on a file: unix.LOCK_EX or unix.LOCK_SH. It waits for the lock until ctx
// is done.
func lockFile(ctx context.Context, f *os.File, how int) error {
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}

// isAt reports whether f is the file at the path.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	existing, err := os.Stat(path)
	return err == nil && os.SameFile(opened, existing)
}

// ReadOnly returns nil if the file system of the state directory is writable, and otherwise the
// error with which it refused to write. Existing entries of the journal can then only be read.
func (l *Lock) ReadOnly() error { return l.readOnly }

// Release releases the lock.
func (l *Lock) Release() error { return l.f.Close() }

// Discard removes the lock file and the file of registrations, and then the state directory if the
// directory is empty. It also releases the lock.
func (l *Lock) Discard() error {
	dir := filepath.Dir(l.f.Name())
	_ = os.Remove(filepath.Join(dir, presenceName))
	err := os.Remove(l.f.Name())
	if err == nil {
		_ = os.Remove(dir) // fails if other programs have files in the directory
	}
	return errors.Join(err, l.Release())
}
