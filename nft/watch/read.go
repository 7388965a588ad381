package watch

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/socket"
)

const (
	// pause is between two looks at a socket. It bounds the work, and delays only what comes soon
	// after something else.
	pause = 100 * time.Millisecond
	// longPause is after a loss, since that makes the hearer look at everything.
	longPause = time.Second
)

// read hears what comes in at a socket until that is closed.
func (w *Watcher) read(s socket.Socket) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	buf := make([]byte, 8<<10)
	for {
		var lost bool
		err := s.WhenReadable(func(fd int) error {
			some, overflow, err := w.drain(fd, buf)
			lost = lost || overflow
			if some && errors.Is(err, unix.EAGAIN) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		// Not before all is read that had arrived: the kernel drops what comes until then, and does
		// not say so again.
		if lost {
			w.lose()
		}
		w.call()
		rest := pause
		if lost {
			rest = longPause
		}
		timer.Reset(rest)
		select {
		case <-timer.C:
		case <-w.closed:
			return os.ErrClosed
		}
	}
}

// drain hears all that has arrived; the error is EAGAIN when that is done. It reports whether there
// was anything, and whether something is lost. There is an end: once the buffer was full the kernel
// adds nothing until it is empty.
func (w *Watcher) drain(fd int, buf []byte) (some, lost bool, err error) {
	var control [64]byte
	for {
		n, c, _, from, err := unix.Recvmsg(fd, buf, control[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			some, lost = true, true
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return some, lost, err
		default:
			some = true
			// Not from the kernel: another process may send to the groups too.
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
				if m, _, err := nlmsg.Next(buf[:n]); err == nil {
					w.hear(origin(control[:c]), m)
				}
			}
		}
	}
}

// hear notes what a message says.
func (w *Watcher) hear(from int32, m nlmsg.Message) {
	if m.Type == unix.RTM_DELNSID {
		// An id is the business of the namespace where it counts.
		if id, ok := nsid(m.Body); ok && from == nowhere {
			w.forget(id)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ns, ok := w.known[from]
	if !ok {
		return
	}
	e := w.pending.of(ns)
	if m.Type == newGeneration {
		e.Rules = true
		e.readGeneration(m.Body)
	} else {
		e.Routes = true
	}
}

// lose notes that messages are lost.
func (w *Watcher) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.lost = true
}
