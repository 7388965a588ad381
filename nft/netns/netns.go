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

	"github.com/sluice-mesh/sluice/nft/internal/thread"
)

// NS is an open network namespace, which exists at least until [NS.Close]. It
// is safe for concurrent use.
//
// A nil *NS is valid and represents the namespace of the calling thread. The
// zero value is not valid.
type NS struct {
	name string
	id   ID

	mu     sync.RWMutex   // Close must not release the descriptor while setns uses it
	handle netns.NsHandle // netns.None() after Close
}

// Open opens the namespace file at path, such as /run/netns/x or
// /proc/PID/ns/net. If the file does not exist, the error wraps
// [fs.ErrNotExist]. Open rejects files that are not namespaces, such as a file
// under /run/netns after its unmount, and namespaces of other types.
func Open(path string) (*NS, error) {
	// netns.GetFromPath lacks O_NONBLOCK: a FIFO at the path would block the caller.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, openError(err))
	}
	return newNS(path, netns.NsHandle(fd))
}

// OpenPID opens the network namespace of a process. pid is the id of the process in
// the mounted /proc. If the process has ended, reaped or not, the error wraps
// [fs.ErrNotExist].
func OpenPID(pid int) (*NS, error) {
	name := "pid " + strconv.Itoa(pid)
	if pid <= 0 {
		return nil, fmt.Errorf("network namespace of %s: not a process id (must be positive)", name)
	}
	h, err := netns.GetFromPid(pid)
	if err == nil {
		return newNS(name, h)
	}
	// A process that ends between the lookup of its directory and of its
	// namespace yields EACCES (proc_ns_get_link in fs/proc/namespaces.c).
	if _, endedErr := os.Lstat("/proc/" + strconv.Itoa(pid)); errors.Is(endedErr, fs.ErrNotExist) {
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("network namespace of %s: the process has ended: %w", name, err)
	}
	return nil, fmt.Errorf("network namespace of %s: %w", name, openError(err))
}

// FromHandle opens the namespace of h. Any descriptor of a namespace file can be converted to a
// handle. FromHandle duplicates the descriptor: the caller remains responsible for closing h.
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

// newNS takes ownership of h and closes it if it is not a network namespace.
func newNS(name string, h netns.NsHandle) (*NS, error) {
	id, err := identifyNetNS(int(h))
	if err != nil {
		_ = h.Close()
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return &NS{name: name, id: id, handle: h}, nil
}

// identifyNetNS returns the identity of the network namespace of fd, or an error if fd is not a
// network namespace. Without this check, setns would return EINVAL for regular files and namespaces
// of other types.
func identifyNetNS(fd int) (ID, error) {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &sfs); err != nil {
		return ID{}, fmt.Errorf("fstatfs: %w", err)
	}
	if sfs.Type != unix.NSFS_MAGIC {
		return ID{}, fmt.Errorf(
			"not a namespace file (perhaps already unmounted; file system type %#x, want nsfs %#x)",
			sfs.Type, unix.NSFS_MAGIC)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return ID{}, fmt.Errorf("get the namespace's type: %w", err)
	}
	if kind != unix.CLONE_NEWNET {
		return ID{}, fmt.Errorf("a %s namespace, not a network namespace", kindName(kind))
	}
	return IDOfFD(fd)
}

// openError adds the privilege that may be missing to the error of opening a namespace.
func openError(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("open: %w (for a process of another user, this needs CAP_SYS_PTRACE)", err)
	}
	return fmt.Errorf("open: %w", err)
}

// kindName returns the name of a type of namespace. kind is a CLONE_NEW constant.
func kindName(kind int) string {
	name, ok := map[int]string{
		unix.CLONE_NEWCGROUP: "cgroup", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWNS: "mount",
		unix.CLONE_NEWPID: "pid", unix.CLONE_NEWTIME: "time", unix.CLONE_NEWUSER: "user",
		unix.CLONE_NEWUTS: "uts",
	}[kind]
	if !ok {
		return fmt.Sprintf("type %#x", kind)
	}
	return name
}

// Handle returns the handle of the namespace for packages such as
// github.com/vishvananda/netlink. The handle is valid until [NS.Close]; the caller must not close
// it. For a nil or closed NS it is [netns.None].
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

// Close releases the namespace. A function that [NS.Do] is running finishes inside it. Closing a
// nil or closed NS does nothing.
func (n *NS) Close() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.handle.IsOpen() {
		return nil
	}
	// The kernel releases the descriptor even if close(2) fails, but the library's Close keeps the
	// number. Closing that number again could close an unrelated file that has reused it.
	h := n.handle
	n.handle = netns.None()
	if err := h.Close(); err != nil {
		return fmt.Errorf("network namespace %s: close: %w", n.name, err)
	}
	return nil
}

// String returns the path, "pid 7" after [OpenPID], or the ID (net:[4026531840]) if the namespace
// has no name or n is nil.
func (n *NS) String() string {
	if n == nil {
		return n.ID().String()
	}
	return n.name
}

// New creates a namespace without a name, whose loopback interface is down. The
// kernel destroys it after [NS.Close] unless a socket or a process still belongs
// to it. Without CAP_SYS_ADMIN the error wraps [unix.EPERM].
func New() (*NS, error) {
	var n *NS
	err := thread.Run(thread.Work{
		Enter: func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		// Not netns.New: it opens /proc/PID/task/TID, which belongs to another process if /proc
		// belongs to another PID namespace.
		Do: func() error {
			h, err := netns.GetFromPath(threadNS)
			if err != nil {
				return fmt.Errorf("open: %w", err)
			}
			n, err = newNS("new", h)
			return err
		},
	})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (needs CAP_SYS_ADMIN)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	n.name = n.id.String()
	return n, nil
}

// threadNS is the namespace file of the calling thread. /proc/self/ns/net is the file
// of the main thread.
const threadNS = "/proc/thread-self/ns/net"

// LoopbackIndex is the index of the loopback interface in every namespace, even if the interface
// was renamed. The interface cannot be removed (LOOPBACK_IFINDEX, loopback_net_init in
// drivers/net/loopback.c).
const LoopbackIndex = 1

// ID identifies a namespace while the namespace exists: two NS refer to the same
// namespace if and only if their IDs are equal. The kernel reuses the numbers of
// destroyed namespaces.
type ID struct {
	Dev, Ino uint64 // of the namespace file
}

// String returns the ID in the form of the link /proc/PID/ns/net: net:[4026531840].
func (id ID) String() string { return fmt.Sprintf("net:[%d]", id.Ino) }

// ID returns the identity of the namespace, also after [NS.Close]. For a nil NS
// it returns the ID of the calling thread's namespace, or the zero ID if /proc is
// not mounted. No open namespace has the zero ID.
func (n *NS) ID() ID {
	if n != nil {
		return n.id
	}
	id, _ := IDOfFile(threadNS)
	return id
}

// IDOfFile returns the identity of the namespace whose file is at path. The namespace may be of any
// type.
func IDOfFile(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}

// IDOfFD returns the identity of the namespace that descriptor fd refers to. The namespace may be
// of any type.
func IDOfFD(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, fmt.Errorf("fstat: %w", err)
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}
