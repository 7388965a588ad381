package serve

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// draftPrefix is how the names of sockets begin that are to get the socket's name.
const draftPrefix = ".new-"

// longestPath is what fits into a sockaddr_un (unix(7)), without the zero byte at its end.
const longestPath = 107

// A listener is a socket that is listened to.
type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
	left chan struct{}
	last time.Time // when nobody is let in any more; set before left is closed
}

// open makes a socket, and puts it instead of the one that has the path. The kernel lets
// whoever connects meanwhile find either.
func open(path string) (*listener, error) {
	d, err := tryOpen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return d, nil
}

func tryOpen(path string) (*listener, error) {
	dir := filepath.Dir(path)
	if err := secure(dir); err != nil {
		return nil, err
	}
	sweep(dir)
	// Agents in containers have the same process id.
	draft := filepath.Join(dir, draftPrefix+rand.Text()[:8])
	if longest := max(len(draft), len(path)); longest > longestPath {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes, and this would need %d", longestPath, longest)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: draft, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	d := &listener{UnixListener: l, path: path, left: make(chan struct{})}
	if err = os.Chmod(draft, 0o600); err == nil {
		d.made, err = os.Lstat(draft)
	}
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(draft))
	}
	return d, nil
}

// secure makes the directory if there is none, and keeps everybody out of it but its owner, which
// must be this process.
func secure(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	if !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory of uid %d", dir, os.Geteuid())
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

// sweep removes the sockets of processes that died before their socket got its name.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		draft := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), draftPrefix) && !answers(draft) {
			_ = os.Remove(draft)
		}
	}
}

// answers reports whether somebody listens to a socket.
func answers(path string) bool {
	conn, err := net.DialTimeout("unix", path, requestTime)
	if err != nil {
		// A full queue belongs to somebody who is alive.
		return errors.Is(err, unix.EAGAIN)
	}
	_ = conn.Close()
	return true
}

// inPlace reports whether the path leads to this listener.
func (d *listener) inPlace() bool {
	now, err := os.Lstat(d.path)
	return err == nil && os.SameFile(now, d.made)
}

// leave lets those in who are waiting already, and then nobody. It does not wait; there may be no
// listener.
func (d *listener) leave() {
	if d == nil {
		return
	}
	d.once.Do(func() {
		d.last = time.Now().Add(requestTime)
		close(d.left)
		_ = d.SetDeadline(time.Now().Add(drainTime))
	})
}

// next waits for the next caller. When the listener is left, the last one is the one after whom
// nobody comes for a while; where no other process has the socket that may be never, and so it ends
// anyhow.
func (d *listener) next() (*net.UnixConn, error) {
	select {
	case <-d.left:
		if now := time.Now(); now.Before(d.last) {
			_ = d.SetDeadline(now.Add(drainTime))
		}
	default:
	}
	return d.AcceptUnix()
}

// pause waits after an error of accepting, such as too many open files. It returns false if the
// listener is left meanwhile.
func (d *listener) pause() bool {
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.left:
		return false
	}
}

func (d *listener) close() { _ = d.Close() }

// Remove removes the socket when the node is to be left without an agent. It is no error if there
// is none.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	// The directory stays if somebody else has put something there.
	_ = os.Remove(filepath.Dir(path))
	return nil
}
