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
)

// A Lock keeps other processes from changing the node at the same time. It ends with the process, however that ends.
type Lock struct{ f *os.File }

const (
	lockName = "lock"
	// lockPoll is how often a lock that somebody holds is tried: they hold it for some milliseconds.
	lockPoll = 10 * time.Millisecond
)

// Acquire takes the lock of a state directory, which is made if it does not exist. It waits until ctx ends; the error says which
// process holds the lock.
func Acquire(ctx context.Context, dir string) (*Lock, error) {
	path := filepath.Join(dir, lockName)
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
			return &Lock{f}, nil
		}
		// Its holder has removed it: the lock of a file without a name keeps nobody away.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
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

// Release gives the lock back.
func (l *Lock) Release() error { return l.f.Close() }

// Discard removes the lock's file and the state directory, if nothing else is in it, and gives the lock back.
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
