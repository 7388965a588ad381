package clustertest

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a TCP port for an agent to listen on. Until the test ends the kernel gives it to
// nobody who asks for any port, as other tests on the machine do.
func Port(tb testing.TB) string {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	// Whoever names the port may have it nevertheless, for nobody listens here, and listeners of Go
	// set this option too.
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
