package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NS is an open network namespace, which exists at least until [NS.Close]. It
// is safe for concurrent use.
//
// A nil *NS is valid: it is the namespace of the calling thread. The zero value
// is not.
type NS struct {
	name string
	id   ID

	mu     sync.RWMutex   // keeps Close from freeing a number that setns is about to use
	handle netns.NsHandle // not open after Close
}

// Open opens the namespace file at path, such as /run/netns/x or
// /proc/PID/ns/net. [fs.ErrNotExist] is in the error when there is no such
// file. A file that is no namespace (what is left under /run/netns when its
// mount is gone) and a namespace of another type are errors too.
func Open(path string) (*NS, error) {
	// O_NONBLOCK, which netns.GetFromPath lacks: a FIFO in the file's place must not block the
	// caller.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, openError(err))
	}
	return newNS(path, netns.NsHandle(fd))
}

// OpenPID opens the network namespace of process pid, seen from the mounted
// /proc. [fs.ErrNotExist] is in the error when the process has ended, reaped or
// not.
func OpenPID(pid int) (*NS, error) {
	name := "pid " + strconv.Itoa(pid)
	if pid <= 0 {
		return nil, fmt.Errorf("network namespace of %s: not a process id", name)
	}
	h, err := netns.GetFromPid(pid)
	if err == nil {
		return newNS(name, h)
	}
	// A process that ends between the lookup of its directory and of its
	// namespace yields EACCES (proc_ns_get_link in fs/proc/namespaces.c).
	if _, gone := os.Lstat("/proc/" + strconv.Itoa(pid)); errors.Is(gone, fs.ErrNotExist) {
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("network namespace of %s: the process has ended: %w", name, err)
	}
	return nil, fmt.Errorf("network namespace of %s: %w", name, openError(err))
}

// FromHandle opens the namespace that h refers to, also when h is a descriptor that comes from
// elsewhere, converted. h stays the caller's to close.
func FromHandle(h netns.NsHandle) (*NS, error) {
	fd, err := unix.FcntlInt(uintptr(h), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace of descriptor %d: %w", int(h), err)
	}
	n, err := newNS("descriptor "+strconv.Itoa(int(h)), netns.NsHandle(fd))
	if err != nil {
		return nil, err
	}
	n.name = n.id.String()
	return n, nil
}

// newNS takes over h, which it closes when that is not a network namespace.
func newNS(name string, h netns.NsHandle) (*NS, error) {
	id, err := check(int(h))
	if err != nil {
		_ = h.Close()
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return &NS{name: name, id: id, handle: h}, nil
}

// check fails unless fd is a network namespace. setns would report a plain file
// and a foreign type as the same EINVAL, and only later.
func check(fd int) (ID, error) {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &sfs); err != nil {
		return ID{}, fmt.Errorf("fstatfs: %w", err)
	}
	if sfs.Type != unix.NSFS_MAGIC {
		return ID{}, fmt.Errorf("not a namespace file (is its mount gone? file system type %#x, want nsfs %#x)",
			sfs.Type, unix.NSFS_MAGIC)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return ID{}, fmt.Errorf("ask for the namespace's type: %w", err)
	}
	if kind != unix.CLONE_NEWNET {
		return ID{}, fmt.Errorf("a %s namespace, not a network namespace", kindName(kind))
	}
	return identify(fd)
}

func openError(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("open: %w (another user's process needs CAP_SYS_PTRACE)", err)
	}
	return fmt.Errorf("open: %w", err)
}

func kindName(kind int) string {
	switch kind {
	case unix.CLONE_NEWCGROUP:
		return "cgroup"
	case unix.CLONE_NEWIPC:
		return "ipc"
	case unix.CLONE_NEWNS:
		return "mount"
	case unix.CLONE_NEWPID:
		return "pid"
	case unix.CLONE_NEWTIME:
		return "time"
	case unix.CLONE_NEWUSER:
		return "user"
	case unix.CLONE_NEWUTS:
		return "uts"
	}
	return fmt.Sprintf("type %#x", kind)
}

// Handle returns the handle of the namespace for packages that take one, such as
// github.com/vishvananda/netlink. It is valid until [NS.Close], which is the only way to close it:
// never close the handle. It is [netns.None] for a nil or closed NS.
func (n *NS) Handle() netns.NsHandle {
	if n == nil {
		return netns.None()
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.handle
}

// FD returns the descriptor of [NS.Handle], for calls that take a number (netlink's
// IFLA_NET_NS_FD). It is -1 for a nil or closed NS.
func (n *NS) FD() int { return int(n.Handle()) }

// Close lets go of the namespace; a function that [NS.Do] is running finishes
// inside it. Closing a nil or closed NS does nothing.
func (n *NS) Close() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.handle.IsOpen() {
		return nil
	}
	// On an error the kernel has released the descriptor all the same (close(2)), but the library's
	// Close keeps its number: closed again, it could be another's.
	h := n.handle
	n.handle = netns.None()
	if err := h.Close(); err != nil {
		return fmt.Errorf("network namespace %s: close: %w", n.name, err)
	}
	return nil
}

// String names the namespace as it was opened: the path, "pid 7", or like
// net:[4026531840] when it has no name or n is nil.
func (n *NS) String() string {
	if n == nil {
		return n.ID().String()
	}
	return n.name
}
