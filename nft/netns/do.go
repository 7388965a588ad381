package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
)

// Panic is what [NS.Do] panics with when fn panicked on another thread: it
// carries fn's value and stack.
type Panic = thread.Panic

// Do runs fn inside the namespace and returns fn's error as it is. What fn
// opens (sockets, /proc/thread-self/net) and the processes it starts belong to
// the namespace; goroutines that it starts do not, so a dial in fn wants a
// literal address: several addresses are dialled by several goroutines.
//
// When the namespace is nil or the calling thread's own, fn is called directly,
// which needs no privilege and no thread. Otherwise it runs on another thread,
// with the credentials of the process, while the caller waits; entering needs
// CAP_SYS_ADMIN in the user namespaces of the process and of the network
// namespace, and [unix.EPERM] is in the error without it. [os.ErrClosed] is in
// it after [NS.Close].
//
// When fn panics or calls [runtime.Goexit] (as t.Fatal does), so does Do, a
// panic as *[Panic]. A thread that cannot come back from the namespace is ended
// and never seen by other goroutines. Do may be nested and is safe for
// concurrent use.
func (n *NS) Do(fn func() error) error {
	if n == nil {
		return fn()
	}
	if !n.Handle().IsOpen() {
		return n.enterError(os.ErrClosed)
	}
	runtime.LockOSThread()
	home, err := openHome()
	if err == nil && home.id == n.id {
		_ = home.handle.Close()
		defer runtime.UnlockOSThread()
		return fn()
	}
	// A caller that stays locked would cost a switch of threads.
	runtime.UnlockOSThread()
	done := thread.Start(thread.Work{
		Enter: func() error {
			// Mostly this is the same thread, since the caller leaves it for this.
			if err == nil && home.thread != unix.Gettid() {
				_ = home.handle.Close()
				home, err = openHome()
			}
			if err != nil {
				return n.enterError(fmt.Errorf("open own namespace: %w", err))
			}
			return n.enter()
		},
		Do:    fn,
		Leave: func() bool { return err == nil && home.enter() },
	})
	return (<-done).Return()
}

// home is the namespace of a thread, to come back to.
type home struct {
	thread int
	handle netns.NsHandle
	id     ID
}

// openHome opens the namespace of the calling thread, which is locked. Its identity is cheaper to
// have from the descriptor than from another look into /proc: 5 µs of 25 for all of Do.
func openHome() (home, error) {
	h, err := netns.GetFromPath(threadNS)
	if err != nil {
		return home{}, err
	}
	id, err := identify(int(h))
	if err != nil {
		_ = h.Close()
		return home{}, err
	}
	return home{thread: unix.Gettid(), handle: h, id: id}, nil
}

// enter moves the calling thread to its namespace, which it closes, and reports whether the thread
// is there.
func (h home) enter() bool {
	err := netns.Set(h.handle)
	_ = h.handle.Close()
	return err == nil
}

// enter moves the calling thread into the namespace.
func (n *NS) enter() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.handle.IsOpen() {
		return n.enterError(os.ErrClosed)
	}
	err := netns.Set(n.handle)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		err = fmt.Errorf("%w (needs CAP_SYS_ADMIN, here and in the namespace's user namespace)", err)
	}
	return n.enterError(err)
}

func (n *NS) enterError(err error) error {
	return fmt.Errorf("network namespace %s: enter: %w", n.name, err)
}
