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

// A Lock keeps other processes from changing the node at the same time. It ends with the process,
// however that ends.
type Lock struct {
	f        *os.File
	readOnly error
}

const (
	lockName = "lock"
	// lockPoll is how often a lock that somebody holds is tried: they hold it for some
	// milliseconds.
	lockPoll = 10 * time.Millisecond
)

// Acquire takes the lock of a state directory, which is made if it does not exist. It waits until
// ctx ends; the error says which process holds the lock. In a directory that has become read-only
// the lock can still be taken: see [Lock.ReadOnly].
func Acquire(ctx context.Context, dir string) (*Lock, error) {
	path := filepath.Join(dir, lockName)
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		f, readOnly, err := open(path)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // the last holder has removed the directory, too
		}
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, f); err != nil {
			holder, _ := os.ReadFile(path)
			err = fmt.Errorf("lock %s, which process %s holds: %w", path, strings.TrimSpace(string(holder)), err)
			return nil, errors.Join(err, f.Close())
		}
		if current(f, path) {
			// For the error message of others; without it they only cannot tell who it is.
			if err := f.Truncate(0); err == nil {
				_, _ = fmt.Fprintln(f, os.Getpid())
			}
			return &Lock{f, readOnly}, nil
		}
		// Its holder has removed it: the lock of a file without a name keeps nobody away.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// open opens a file to be locked, which is made if it does not exist. Where that cannot be because
// the file system is read-only, one that is there does as well, and readOnly says so.
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

func wait(ctx context.Context, f *os.File) error {
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
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

func current(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}

// ReadOnly returns why nothing can be recorded in the state directory: its file system is
// read-only. What was recorded before can be read.
func (l *Lock) ReadOnly() error { return l.readOnly }

// Release gives the lock back.
func (l *Lock) Release() error { return l.f.Close() }

// Discard removes the lock's file and the state directory, if nothing else is in it, and gives the
// lock back.
func (l *Lock) Discard() error {
	dir := filepath.Dir(l.f.Name())
	_ = os.Remove(filepath.Join(dir, presenceName))
	err := os.Remove(l.f.Name())
	if err == nil {
		// Others may keep files there.
		_ = os.Remove(dir)
	}
	return errors.Join(err, l.Release())
}
