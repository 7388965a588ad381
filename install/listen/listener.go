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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tempPrefix is the prefix of the temporary names of sockets.
const tempPrefix = ".new-"

// maxPathLen is the maximum length of a path in a sockaddr_un (unix(7)) in bytes, without the
// terminating zero.
const maxPathLen = 107

// A listener is a listening socket.
type listener struct {
	*net.UnixListener
	path        string
	file        os.FileInfo // of the socket
	once        sync.Once
	leaveCalled chan struct{} // closed by leave
	deadline    time.Time     // end of the time in which connections are accepted after leave
}

// open creates a socket, and replaces an existing socket at the path. A client that connects
// meanwhile reaches one of the two.
func open(network, path string) (_ *listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen on socket %s: %w", path, err)
		}
	}()
	dir := filepath.Dir(path)
	if err := secureDir(dir); err != nil {
		return nil, err
	}
	removeTemporary(dir)
	// The name is random, because agents in containers may have equal process IDs.
	temporary := filepath.Join(dir, tempPrefix+rand.Text()[:8])
	if length := max(len(temporary), len(path)); length > maxPathLen {
		return nil, fmt.Errorf("the path of a socket may have at most %d bytes, but this path needs %d",
			maxPathLen, length)
	}
	unixListener, err := net.ListenUnix(network, &net.UnixAddr{Name: temporary, Net: network})
	if err != nil {
		return nil, err
	}
	unixListener.SetUnlinkOnClose(false)
	l := &listener{UnixListener: unixListener, path: path, leaveCalled: make(chan struct{})}
	if err = os.Chmod(temporary, 0o600); err == nil {
		l.file, err = os.Lstat(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temporary))
	}
	return l, nil
}

// secureDir creates the directory if it does not exist, and makes it accessible only to its owner.
// The owner must be the user of this process.
func secureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
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
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), tempPrefix) && !isOpen(path) {
			_ = os.Remove(path)
		}
	}
}

// isOpen reports whether a running process has the socket at a path open. It makes no connection,
// which a server could mistake for a client: connecting a datagram socket to a socket of another
// type always fails, but with EPROTOTYPE only if a process has the socket open (unix_find_bsd in
// net/unix/af_unix.c).
func isOpen(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // unknown: the next check tries again
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	return err == nil || errors.Is(err, unix.EPROTOTYPE)
}

// isInPlace reports whether the file at the path is this listener's socket. l may be nil.
func (l *listener) isInPlace() bool {
	if l == nil {
		return false
	}
	current, err := os.Lstat(l.path)
	return err == nil && os.SameFile(current, l.file)
}

// leave makes next return an error once no more connections arrive. It does not block. l may be
// nil.
func (l *listener) leave() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		l.deadline = time.Now().Add(leaveTimeout)
		close(l.leaveCalled)
		_ = l.SetDeadline(time.Now().Add(drainTime))
	})
}

// next waits for the next connection. After leave, it returns a timeout error once no connection
// has arrived for drainTime, and after leaveTimeout at the latest: if another process has the
// socket open too, connections may never stop arriving.
func (l *listener) next() (*net.UnixConn, error) {
	select {
	case <-l.leaveCalled:
		if now := time.Now(); now.Before(l.deadline) {
			_ = l.SetDeadline(now.Add(drainTime))
		}
	default:
	}
	return l.AcceptUnix()
}

// pause waits after an error of accept, such as too many open files. It returns false if leave is
// called meanwhile.
func (l *listener) pause() bool {
	select {
	case <-time.After(drainTime):
		return true
	case <-l.leaveCalled:
		return false
	}
}

// Remove removes the socket, and its directory if it is empty. It must be called only when no agent
// remains on the node. A missing socket is not an error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	// The directory stays if it contains other files.
	_ = os.Remove(filepath.Dir(path))
	return nil
}
