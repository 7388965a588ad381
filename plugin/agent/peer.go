package agent

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the credentials of the process at the other end of a connection: for a server the
// process that connected, and for a client the process that called listen (unix(7), SO_PEERCRED).
// The process id is 0 if the process is not visible in the PID namespace of the caller.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var optionErr error
	err = raw.Control(func(fd uintptr) {
		credentials, optionErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = optionErr
	}
	if err != nil {
		return nil, fmt.Errorf("credentials of the peer: %w", err)
	}
	return credentials, nil
}
