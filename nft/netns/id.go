package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// threadNS is the calling thread's namespace; /proc/self would be the main
// thread's.
const threadNS = "/proc/thread-self/ns/net"

// ID identifies a network namespace while it exists: two NS are the same
// namespace exactly when their IDs are equal. Numbers of namespaces that are
// gone are used again.
type ID struct {
	Dev, Ino uint64 // of the namespace file
}

// String is the form that ls shows for /proc/PID/ns/net: net:[4026531840].
func (id ID) String() string { return fmt.Sprintf("net:[%d]", id.Ino) }

// ID returns the namespace's identity, also after [NS.Close]. For a nil NS it
// is the calling thread's; when that cannot be known because /proc is not
// mounted it is the zero ID, which no open namespace has.
func (n *NS) ID() ID {
	if n != nil {
		return n.id
	}
	var st unix.Stat_t
	if err := unix.Stat(threadNS, &st); err != nil {
		return ID{}
	}
	return ID{Dev: st.Dev, Ino: st.Ino}
}

// identify returns the identity of the namespace that descriptor fd refers to.
func identify(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, fmt.Errorf("fstat: %w", err)
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}
