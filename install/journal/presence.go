package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Presence tells other processes that somebody keeps the node as it should be. Several may, during a rolling update. It ends with
// the process, however that ends.
type Presence struct{ f *os.File }

const presenceName = "agents"

// ErrPresent is the error of what makes no sense while an agent runs.
var ErrPresent = errors.New("an agent is running on this node")

// Attend makes this process present in a state directory, which is made if it does not exist.
func Attend(dir string) (*Presence, error) {
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
	return &Presence{f}, nil
}

// Leave ends the presence.
func (p *Presence) Leave() error { return p.f.Close() }

// Absent returns nil if nobody is present in a state directory, and [ErrPresent] if somebody is.
func Absent(dir string) error {
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
		return ErrPresent
	}
	return err
}
