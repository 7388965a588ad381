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

// Panic is the value with which [NS.Do] panics if fn panics on another thread. It
// contains the value with which fn panicked, and the stack of that goroutine.
type Panic = thread.Panic

// Do runs fn inside the namespace and returns fn's error unwrapped. Sockets and
// files of /proc/thread-self/net that fn opens, and processes that fn starts,
// belong to the namespace. Goroutines that fn starts run outside the namespace.
// Therefore fn must dial literal addresses: net.Dial starts goroutines for a name
// with several addresses.
//
// If n is nil or the namespace of the calling thread, Do calls fn directly,
// without any privilege or another thread. Otherwise fn runs on another thread,
// with the credentials of the process, while the caller waits. Entering needs
// CAP_SYS_ADMIN in the user namespaces of the process and of the network
// namespace; without it the error wraps [unix.EPERM]. After [NS.Close] the error
// wraps [os.ErrClosed].
//
// If fn panics on another thread, Do panics with a *[Panic]. If fn calls
// [runtime.Goexit], as t.Fatal does, Do calls it too. A thread that cannot return
// to its original namespace is terminated and never runs another goroutine. Do may
// be nested and is safe for concurrent use.
func (n *NS) Do(fn func() error) error {
	if n == nil {
		return fn()
	}
	if !n.Handle().IsOpen() {
		return n.enterError(os.ErrClosed)
	}
	runtime.LockOSThread()
	original, err := openOriginal()
	if err == nil && original.id == n.id {
		_ = original.handle.Close()
		defer runtime.UnlockOSThread()
		return fn()
	}
	// Unlock the thread: a goroutine that waits on a locked thread costs a thread switch.
	runtime.UnlockOSThread()
	done := thread.Start(thread.Work{
		Enter: func() error {
			// Usually this runs on the thread that the caller has released. Then the namespace of
			// the thread is already open.
			if err == nil && original.thread != unix.Gettid() {
				_ = original.handle.Close()
				original, err = openOriginal()
			}
			if err != nil {
				return n.enterError(fmt.Errorf("open the original namespace: %w", err))
			}
			return n.enter()
		},
		Do:    fn,
		Leave: func() bool { return err == nil && original.restore() },
	})
	return (<-done).Return()
}

// DoNamed is like [NS.Do], but adds the name of the namespace to an error, unless n is nil.
func (n *NS) DoNamed(fn func() error) error {
	err := n.Do(fn)
	if err != nil && n != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	return err
}

// OnNewThread runs enter and then fn on a thread that ends afterwards. If enter fails, fn does not
// run. OnNewThread returns the error of enter or fn. Because the thread ends, enter may change
// attributes of the thread that cannot be restored, such as several of its namespaces. If fn
// panics, OnNewThread panics with a *[Panic]. If fn calls [runtime.Goexit], OnNewThread calls it
// too.
func OnNewThread(enter, fn func() error) error {
	return thread.Run(thread.Work{Enter: enter, Do: fn})
}

// originalNS is the namespace of a thread before Do changes it.
type originalNS struct {
	thread int
	handle netns.NsHandle
	id     ID
}

// openOriginal opens the namespace of the calling thread, which must be locked. It reads the
// identity from the descriptor: a second lookup in /proc would add 5 µs to the 25 µs that Do takes.
func openOriginal() (originalNS, error) {
	h, err := netns.GetFromPath(threadNS)
	if err != nil {
		return originalNS{}, err
	}
	id, err := IDOfFD(int(h))
	if err != nil {
		_ = h.Close()
		return originalNS{}, err
	}
	return originalNS{thread: unix.Gettid(), handle: h, id: id}, nil
}

// restore moves the calling thread to the original namespace, closes the handle, and reports
// whether the move succeeded.
func (o originalNS) restore() bool {
	err := netns.Set(o.handle)
	_ = o.handle.Close()
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
		err = fmt.Errorf("%w (needs CAP_SYS_ADMIN in the user namespaces of the process"+
			" and of the network namespace)", err)
	}
	return n.enterError(err)
}

// enterError adds the name of the namespace to an error of entering it.
func (n *NS) enterError(err error) error {
	return fmt.Errorf("network namespace %s: enter: %w", n.name, err)
}
