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
		if time.Since(start) > time.Minute { // the kernel ends namespaces one after another, those of other tests too
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

// Asker is the port id of the socket by which the watcher asks for ids, which it has after the
// first question, and the number of the last question.
func Asker(t testing.TB, w *Watcher) (port, question uint32) {
	t.Helper()
	a, err := unix.Getsockname(w.ids.fd)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*unix.SockaddrNetlink).Pid, w.ids.sequence
}

// AskerFD is the descriptor of that socket.
func AskerFD(w *Watcher) int { return w.ids.fd }

// GiveUp asks for the id of a namespace, and does not read the answer.
func GiveUp(t testing.TB, w *Watcher, ns *netns.NS) {
	t.Helper()
	request := w.ids.request(unix.RTM_GETNSID, 0, []attribute{{unix.NETNSA_FD, uint32(ns.FD())}})
	if err := nlmsg.Send(w.ids.fd, request); err != nil {
		t.Fatal(err)
	}
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
