package listen

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

// tempPrefix is the prefix of the names of sockets before they are renamed.
const tempPrefix = ".new-"

// maxPathLen is the maximum length of a path in a sockaddr_un (unix(7)), without the terminating
// zero.
const maxPathLen = 107

// A listener is a listening socket.
type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
	left chan struct{}
	last time.Time // accept no connection after it; set before left is closed
}

// open creates a socket, and replaces the one at the path. A client that connects meanwhile reaches
// one of the two.
func open(network, path string) (*listener, error) {
	d, err := tryOpen(network, path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return d, nil
}

func tryOpen(network, path string) (*listener, error) {
	dir := filepath.Dir(path)
	if err := secure(dir); err != nil {
		return nil, err
	}
	removeTemporary(dir)
	// Agents in containers have equal process ids.
	draft := filepath.Join(dir, tempPrefix+rand.Text()[:8])
	if length := max(len(draft), len(path)); length > maxPathLen {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes, this path needs %d",
			maxPathLen, length)
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: draft, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	d := &listener{
		UnixListener: l, path: path, left: make(chan struct{}),
	}
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

// secure creates the directory if it does not exist, and sets permissions for only its owner, which
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

// removeTemporary removes the sockets of processes that ended before they renamed their socket.
func removeTemporary(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		draft := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), tempPrefix) && !answers(draft) {
			_ = os.Remove(draft)
		}
	}
}

// answers reports whether a running process has the socket at a path. It makes no connection, which
// a server could mistake for a client: connecting a datagram socket to a socket of another type
// fails, and with another error if there is no process (unix_find_bsd in net/unix/af_unix.c).
func answers(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // not known: another attempt follows
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	return err == nil || errors.Is(err, unix.EPROTOTYPE)
}

// owned reports whether the path is this listener's socket. d may be nil.
func (d *listener) owned() bool {
	if d == nil {
		return false
	}
	current, err := os.Lstat(d.path)
	return err == nil && os.SameFile(current, d.made)
}

// leave accepts the waiting connections, and no later ones. It does not block; d may be nil.
func (d *listener) leave() {
	if d == nil {
		return
	}
	d.once.Do(func() {
		d.last = time.Now().Add(lastTime)
		close(d.left)
		_ = d.SetDeadline(time.Now().Add(drainTime))
	})
}

// next waits for the next connection. After leave it ends when there was no connection for a while,
// because another process that also has the socket may keep it open.
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

// pause waits after an error of accept, such as too many open files. It returns false if leave is
// called meanwhile.
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

// Remove removes the socket when no agent remains on the node. It is not an error if there is none.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	// The directory stays if it contains other files.
	_ = os.Remove(filepath.Dir(path))
	return nil
}
