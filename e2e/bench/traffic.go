package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A traffic is a client and a server in a pod. The client sends datagrams over lo, and the server
// replies to each.
type traffic struct {
	client, server int           // file descriptors of the sockets
	started        chan struct{} // closed after the first reply or after replyTimeout
	quit           chan struct{} // closed to end the traffic
	done           chan struct{} // closed when run has returned
	sent, answered int           // numbers of datagrams
	gap            time.Duration // longest time without a reply
	err            error
}

const (
	// sendInterval gives 5,000 datagrams per second.
	sendInterval = 200 * time.Microsecond
	// replyTimeout limits the wait for the first reply, and the wait for the last replies after
	// quit is closed.
	replyTimeout = 50 * time.Millisecond
)

// startTraffic starts the traffic, and returns after the first reply or after replyTimeout.
func startTraffic(ns *netns.NS) (*traffic, error) {
	t, err := newTraffic(ns)
	if err != nil {
		return nil, err
	}
	t.started, t.quit, t.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go t.run(t.quit)
	<-t.started
	return t, nil
}

// newTraffic returns traffic with connected sockets that has not started.
func newTraffic(ns *netns.NS) (*traffic, error) {
	t := &traffic{}
	err := ns.Do(func() (err error) {
		if t.server, err = loopbackSocket(); err != nil {
			return err
		}
		if t.client, err = loopbackSocket(); err != nil {
			return errors.Join(err, unix.Close(t.server))
		}
		return errors.Join(connectTo(t.client, t.server), connectTo(t.server, t.client))
	})
	if err != nil {
		return nil, fmt.Errorf("open the traffic sockets: %w", err)
	}
	return t, nil
}

// loopbackSocket returns a socket bound to a port of 127.0.0.1.
func loopbackSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}

// connectTo connects the socket from to the address of the socket to.
func connectTo(from, to int) error {
	address, err := unix.Getsockname(to)
	if err != nil {
		return err
	}
	return unix.Connect(from, address)
}

// run sends and replies until quit is closed and the last replies have arrived or timed out. It
// locks its thread and sleeps in the kernel, because a ticker would be late while another goroutine
// is in a long system call.
func (t *traffic) run(quit <-chan struct{}) {
	defer close(t.done)
	signalStarted := sync.OnceFunc(func() { close(t.started) })
	defer signalStarted()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lastReply := time.Now()
	var deadline time.Time // of the last replies; zero until quit is closed
	for next := lastReply; ; {
		if deadline.IsZero() {
			// Write fails if netfilter drops the datagram at output. The datagram then counts as
			// lost.
			_, _ = unix.Write(t.client, []byte("ping"))
			t.sent++
		}
		replies, err := t.echo()
		if err != nil {
			t.err = err
			return
		}
		now := time.Now()
		t.gap = max(t.gap, now.Sub(lastReply))
		if replies > 0 {
			lastReply = now
		}
		if replies > 0 || now.Sub(lastReply) > replyTimeout {
			signalStarted()
		}
		t.answered += replies
		if !deadline.IsZero() && (t.answered == t.sent || now.After(deadline)) {
			return
		}
		select {
		case <-quit:
			quit, deadline = nil, now.Add(replyTimeout)
		default:
		}
		// If this loop is late, it does not send the missed datagrams later.
		if next = next.Add(sendInterval); next.Before(now) {
			next = now
		}
		delay := unix.NsecToTimespec(next.Sub(now).Nanoseconds())
		if err := unix.Nanosleep(&delay, nil); err != nil && !errors.Is(err, unix.EINTR) {
			t.err = fmt.Errorf("wait before the next datagram: %w", err)
			return
		}
	}
}

// echo makes the server reply to all datagrams that it has received, and returns the number of
// replies that the client has received since the previous call.
func (t *traffic) echo() (replies int, err error) {
	var buf [64]byte
	for _, fd := range []int{t.server, t.client} {
		for {
			n, err := unix.Read(fd, buf[:])
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return 0, fmt.Errorf("receive a datagram: %w", err)
			}
			if fd == t.client {
				replies++
				continue
			}
			_, _ = unix.Write(fd, buf[:n])
		}
	}
	return replies, nil
}

// stop ends the traffic, and returns the number of datagrams without a reply and the longest time
// without a reply.
func (t *traffic) stop() (lost int, gap time.Duration, err error) {
	close(t.quit)
	<-t.done
	return t.sent - t.answered, t.gap, errors.Join(t.err, t.close())
}

// establish sends a datagram and a reply. Conntrack then treats the flow as established.
func (t *traffic) establish() error {
	if err := t.sendOne(); err != nil {
		return err
	}
	reply := traffic{client: t.server, server: t.client}
	return reply.sendOne()
}

// sendOne sends a datagram from the client and receives it at the server. The kernel delivers the
// datagram before the send call returns.
func (t *traffic) sendOne() error {
	var buf [64]byte
	if _, err := unix.Write(t.client, buf[:]); err != nil {
		return err
	}
	_, err := unix.Read(t.server, buf[:])
	return err
}

// close closes the sockets.
func (t *traffic) close() error { return errors.Join(unix.Close(t.client), unix.Close(t.server)) }
