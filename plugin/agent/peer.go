package agent

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the credentials of the process at the other end of a connection: the one that
// connected, or that called listen (unix(7), SO_PEERCRED). The process id is 0 if the process is
// not visible in the PID namespace of this process.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("credentials of the peer: %w", err)
	}
	return credentials, nil
}
