package journal

import (
	"context"
	"errors"
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

// registerTimeout is the maximum time for which RegisterAgent waits for the lock. [CheckNoAgent]
// and [Lock.Discard] hold the lock for a short time. A process that is stopped while it holds the
// lock must not keep the agent from starting.
const registerTimeout = time.Second

// RegisterAgent registers this process in a state directory, which it creates if it does not exist.
// It waits for a running [CheckNoAgent] or [Lock.Discard], and returns an error after
// registerTimeout.
func RegisterAgent(dir string) (*Registration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	f, _, err := openLocked(ctx, filepath.Join(dir, presenceName), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return &Registration{f}, nil
}

// Unregister ends the registration.
func (r *Registration) Unregister() error { return r.f.Close() }

// checkTimeout is the maximum time for which [CheckNoAgent] waits for another check.
const checkTimeout = 5 * lockPoll

// CheckNoAgent returns nil if no agent is registered in a state directory, and [ErrAgentRunning] if
// an agent is registered, or if another process keeps the lock for checkTimeout. It does not wait
// for a writer if the file is a pipe.
func CheckNoAgent(dir string) error {
	return withoutAgent(dir, func(*os.File) {})
}

// withoutAgent is like CheckNoAgent. If no agent is registered, and the file of registrations
// exists, it calls do with the file while no agent can register.
func withoutAgent(dir string, do func(presence *os.File)) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	path := filepath.Join(dir, presenceName)
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// Another check holds the lock for a moment, and an agent until its end.
		err = lockFile(ctx, f, unix.LOCK_EX)
		if errors.Is(err, context.DeadlineExceeded) {
			err = ErrAgentRunning
		}
		isCurrent := err != nil || isAt(f, path)
		if err == nil && isCurrent {
			do(f)
		}
		_ = f.Close() // releases the lock
		if isCurrent {
			return err
		}
		// [Lock.Discard] has removed the file meanwhile. An agent may have registered on a new
		// file.
	}
}

// removePresence removes the file of registrations, unless an agent is registered. An agent that
// waits for the lock meanwhile registers on a new file.
func removePresence(dir string) {
	_ = withoutAgent(dir, func(presence *os.File) { _ = os.Remove(presence.Name()) })
}
