package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Registration tells other processes that somebody keeps the node as it should be. Several may, during a rolling update. It ends with
// the process, however that ends.
type Registration struct{ f *os.File }

const presenceName = "agents"

// ErrAgentRunning is the error of what makes no sense while an agent runs.
var ErrAgentRunning = errors.New("an agent is running on this node")

// RegisterAgent makes this process present in a state directory, which is made if it does not exist.
func RegisterAgent(dir string) (*Registration, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, _, err := open(filepath.Join(dir, presenceName))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return &Registration{f}, nil
}

// Unregister ends the presence.
func (p *Registration) Unregister() error { return p.f.Close() }

// Absent returns nil if nobody is present in a state directory, and [ErrAgentRunning] if somebody is.
func CheckNoAgent(dir string) error {
	f, err := os.Open(filepath.Join(dir, presenceName))
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
