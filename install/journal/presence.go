package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A Registration shows other processes that an agent is running on the node. During a rolling
// update several agents may be registered. A registration ends with the process, even if it is
// killed.
type Registration struct{ f *os.File }

// presenceName is the name of the file on which each registered agent holds a shared lock.
const presenceName = "agents"

// ErrAgentRunning is the error of an action that is not allowed while an agent is running.
var ErrAgentRunning = errors.New("an agent is running on this node")

// registerTimeout is the maximum time for which RegisterAgent waits for the lock. CheckNoAgent
// holds the lock for less than a millisecond. A process that is stopped while it holds the lock
// must not keep the agent from starting.
const registerTimeout = time.Second

// RegisterAgent registers this process in a state directory, which it creates if it does not exist.
// It waits for a running [CheckNoAgent], and returns an error after registerTimeout.
func RegisterAgent(dir string) (*Registration, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, _, err := open(filepath.Join(dir, presenceName))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	if err := lockFile(ctx, f, unix.LOCK_SH); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return &Registration{f}, nil
}

// Unregister ends the registration.
func (r *Registration) Unregister() error { return r.f.Close() }

// CheckNoAgent returns nil if no agent is registered in a state directory, and [ErrAgentRunning] if
// an agent is registered. It does not wait for a writer if the file is a pipe.
func CheckNoAgent(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, presenceName), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only locked
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrAgentRunning
	}
	return err
}
