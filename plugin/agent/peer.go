package agent

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID returns the user of the process at the other end of a connection: the one that connected,
// or that called listen (unix(7), SO_PEERCRED).
func PeerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("credentials of the peer: %w", err)
	}
	return credentials.Uid, nil
}
