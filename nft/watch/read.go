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
	// readInterval is the minimum time between two reads of a socket, which bounds the processor
	// time. A message that arrives after this time is read immediately.
	readInterval = 100 * time.Millisecond
	// lossInterval replaces readInterval after a loss, because the caller then checks all
	// namespaces.
	lossInterval = time.Second
)

// read receives messages from a socket until the socket is closed or fails, and returns the error.
func (w *Watcher) read(s socket.Socket) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	buf := make([]byte, 8<<10)
	for {
		var lost bool
		err := s.WhenReadable(func(fd int) error {
			received, overflow, err := w.drain(fd, buf)
			lost = lost || overflow
			if received && errors.Is(err, unix.EAGAIN) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		// Report the loss only after draining: until the queue is empty, the kernel drops further
		// messages without reporting them.
		if lost {
			w.setLost()
		}
		w.notify()
		interval := readInterval
		if lost {
			interval = lossInterval
		}
		timer.Reset(interval)
		select {
		case <-timer.C:
		case <-w.closed:
			return os.ErrClosed
		}
	}
}

// drain receives messages until an error, which is EAGAIN when the queue is empty. received reports
// whether there was a message or a loss, and lost whether messages were lost. drain terminates
// under load: after an overflow the kernel queues no message until the queue is empty.
func (w *Watcher) drain(fd int, buf []byte) (received, lost bool, err error) {
	var control [64]byte
	for {
		n, c, flags, from, err := unix.Recvmsg(fd, buf, control[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			received, lost = true, true
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return received, lost, err
		default:
			received = true
			// Ignore messages of processes, which can send to the groups too.
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
				switch m, _, err := nlmsg.Next(buf[:n]); {
				case err == nil:
					w.recordMessage(origin(control[:c]), m)
				case flags&unix.MSG_TRUNC != 0:
					// A process can make the message about an interface long, with alternative
					// names.
					m.Type = native.Uint16(buf[4:])
					w.recordMessage(origin(control[:c]), m)
				}
			}
		}
	}
}

// recordMessage adds the change that a message reports to the pending events, or removes a
// destroyed namespace. from is the id of the namespace that the message comes from.
func (w *Watcher) recordMessage(from int32, m nlmsg.Message) {
	if m.Type == unix.RTM_DELNSID {
		// Each namespace assigns its own ids. The watcher uses the ids of its own namespace.
		if id, ok := nsid(m.Body); ok && from == ownID {
			w.remove(id)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ns, ok := w.namespaces[from]
	if !ok {
		return
	}
	e := w.pending.add(ns)
	if m.Type == newGeneration {
		e.Rules = true
		e.readGeneration(m.Body)
	} else {
		e.Routes = true
	}
}

// setLost records that messages were lost.
func (w *Watcher) setLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.lost = true
}
