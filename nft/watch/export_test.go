package watch

import (
	"maps"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Known is how many namespaces the watcher hears of.
func (w *Watcher) Known() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.known)
}

// WaitKnown waits until the watcher hears of so many namespaces.
func WaitKnown(t testing.TB, w *Watcher, n int) {
	t.Helper()
	for start := time.Now(); w.Known() != n; runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("it hears of %d namespaces, want %d", w.Known(), n)
		}
	}
}

// Ports are the port ids of the watcher's sockets.
func Ports(t testing.TB, w *Watcher) (ports []uint32) {
	t.Helper()
	for _, s := range w.sockets {
		err := s.Control(func(fd int) error {
			a, err := unix.Getsockname(fd)
			ports = append(ports, a.(*unix.SockaddrNetlink).Pid)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// ForgetAll makes the watcher hear that all ids have ended.
func ForgetAll(w *Watcher) {
	w.mu.Lock()
	known := maps.Clone(w.known)
	w.mu.Unlock()
	for id := range known {
		w.forget(id)
	}
}

// Shrink leaves room for few messages.
func Shrink(t testing.TB, w *Watcher) {
	t.Helper()
	for _, s := range w.sockets {
		err := s.Control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10) })
		if err != nil {
			t.Fatal(err)
		}
	}
}
