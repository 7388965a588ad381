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
// for the lock until ctx is done. In this case the error names the process that last acquired the
// lock. On a read-only file system, Acquire needs an existing lock file; see [Lock.ReadOnly].
func Acquire(ctx context.Context, dir string) (*Lock, error) {
	f, readOnly, err := openLocked(ctx, filepath.Join(dir, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	// The process ID is only for error messages of other processes, so errors are ignored.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return &Lock{f, readOnly}, nil
}

// openLocked opens a file of a state directory, and acquires a lock on it: unix.LOCK_EX or
// unix.LOCK_SH. It creates the file and the directory if they do not exist; readOnly is as in open.
// It waits for the lock until ctx is done. In this case the error names the process in the file, if
// any.
func openLocked(
	ctx context.Context, path string, how int,
) (f *os.File, readOnly, err error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, nil, fmt.Errorf("state directory: %w", err)
		}
		f, readOnly, err := open(path)
		if errors.Is(err, fs.ErrNotExist) && wait(ctx) == nil {
			continue // the last holder of the lock has also removed the directory
		}
		if err != nil {
			return nil, nil, err
		}
		if err := lockFile(ctx, f, how); err != nil {
			subject := "lock " + path
			if holder, _ := file.ReadRegular(path); len(holder) > 0 {
				subject += ", last acquired by process " + strings.TrimSpace(string(holder))
			}
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", subject, err), f.Close())
		}
		if isAt(f, path) {
			return f, readOnly, nil
		}
		// The last holder has removed the file. The lock of a removed file does not exclude other
		// processes.
		if err := f.Close(); err != nil {
			return nil, nil, err
		}
	}
}

// wait waits for lockPoll, and returns the error of ctx if ctx is done before.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lockPoll):
		return nil
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
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if err := wait(ctx); err != nil {
			return err
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

// Discard removes the lock file and, unless an agent is registered, the file of registrations, and
// then the state directory if the directory is empty. It also releases the lock.
func (l *Lock) Discard() error {
	dir := filepath.Dir(l.f.Name())
	removePresence(dir)
	err := os.Remove(l.f.Name())
	if err == nil {
		_ = os.Remove(dir) // fails if other programs have files in the directory
	}
	return errors.Join(err, l.Release())
}
