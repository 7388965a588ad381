// Package observetest reserves ports for tests of the node agent's HTTP listeners.
package observetest

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a TCP port for an agent. Until the test ends the kernel does not assign it to
// sockets that request any free port.
func Port(tb testing.TB) string {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	// A socket that requests the port can still bind it, because this socket does not listen, and
	// Go sets the same option on listeners.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{}); err != nil {
		tb.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	return strconv.Itoa(name.(*unix.SockaddrInet6).Port)
}
