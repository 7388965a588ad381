package netns

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

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

// IDOfFile returns the identity of the namespace with the file, which may be of any type.
func IDOfFile(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}

// IDOfFD returns the identity of the namespace that descriptor fd refers to, which may be of any
// type.
func IDOfFD(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, fmt.Errorf("fstat: %w", err)
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}
