package watch

import (
	"maps"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// namespaceCount returns the number of namespaces of the watcher.
func (w *Watcher) namespaceCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.namespaces)
}

// WaitForNamespaceCount waits until the watcher has n namespaces.
func WaitForNamespaceCount(t testing.TB, w *Watcher, n int) {
	t.Helper()
	for start := time.Now(); w.namespaceCount() != n; runtime.Gosched() {
		// Wait long: the kernel destroys namespaces one after another, including those of other
		// tests.
		if time.Since(start) > time.Minute {
			t.Fatalf("the watcher has %d namespaces, want %d", w.namespaceCount(), n)
		}
	}
}

// Ports returns the port ids of the watcher's sockets.
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

// IDClientPort returns the port id of the socket of the watcher's idClient.
func IDClientPort(t testing.TB, w *Watcher) uint32 {
	t.Helper()
	a, err := unix.Getsockname(w.ids.fd)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*unix.SockaddrNetlink).Pid
}

// IDClientFD returns the descriptor of the socket of the watcher's idClient.
func IDClientFD(w *Watcher) int { return w.ids.fd }

// AbandonRequest requests the id of a namespace, and does not read the answer.
func AbandonRequest(t testing.TB, w *Watcher, ns *netns.NS) {
	t.Helper()
	request := w.ids.encodeRequest(unix.RTM_GETNSID, 0, []attribute{{
		unix.NETNSA_FD, uint32(ns.FD()),
	}})
	if err := nlmsg.Send(w.ids.fd, request); err != nil {
		t.Fatal(err)
	}
}

// RemoveAll makes the watcher handle the removal of each id.
func RemoveAll(w *Watcher) {
	w.mu.Lock()
	namespaces := maps.Clone(w.namespaces)
	w.mu.Unlock()
	for id := range namespaces {
		w.remove(id)
	}
}

// ShrinkBuffers reduces the receive buffers to a few messages.
func ShrinkBuffers(t testing.TB, w *Watcher) {
	t.Helper()
	for _, s := range w.sockets {
		err := s.Control(func(fd int) error {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
