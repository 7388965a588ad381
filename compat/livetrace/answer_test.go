package livetrace_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// An answerTest has two connected namespaces, of a pod and of its neighbor. conntrack tracks the
// connections of the pod.
type answerTest struct {
	netnstest.Pair
	answers     *livetrace.Answers
	clockOffset time.Duration
}

// newAnswerTest starts to receive answers in the pod. A rule redirects port 443 to a local port of
// the pod.
func newAnswerTest(t *testing.T) *answerTest {
	t.Helper()
	a := &answerTest{Pair: netnstest.NewPair(t)}
	runIn(t, a.Pod, "nft", "table ip tracked { chain output { type nat hook output priority 0; "+
		"tcp dport 443 redirect to :15001; }; }")
	var err error
	if a.answers, err = livetrace.OpenAnswers(a.Pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.answers.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// socket returns a socket of the pod that is bound to an unused port, and its address.
func (a *answerTest) socket(t *testing.T, kind int) (int, netip.AddrPort) {
	t.Helper()
	var fd int
	var port uint16
	err := a.Pod.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: a.PodIP4.As4()}); err != nil {
			return err
		}
		local, err := unix.Getsockname(fd)
		if err == nil {
			port = uint16(local.(*unix.SockaddrInet4).Port)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, netip.AddrPortFrom(a.PodIP4, port)
}

// openWatched watches a connection to a port of the neighbor and sends its first packet.
func (a *answerTest) openWatched(t *testing.T, kind, port int) livetrace.Connection {
	t.Helper()
	return a.connect(t, kind, port, func(c livetrace.Connection) {
		a.answers.Watch(c, time.Time{})
	})
}

// connect calls before with a connection to a port of the neighbor, and then sends the first packet
// of the connection.
func (a *answerTest) connect(
	t *testing.T, kind, port int, before func(livetrace.Connection),
) livetrace.Connection {
	t.Helper()
	fd, source := a.socket(t, kind)
	c := livetrace.Connection{
		Protocol: rules.TCP, Source: source,
		Destination: netip.AddrPortFrom(a.NeighborIP4, uint16(port)),
	}
	if kind == unix.SOCK_DGRAM {
		c.Protocol = rules.UDP
	}
	before(c)
	to := &unix.SockaddrInet4{Addr: a.NeighborIP4.As4(), Port: port}
	err := unix.Connect(fd, to)
	if kind == unix.SOCK_DGRAM && err == nil {
		_, err = unix.Write(fd, []byte("x"))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	return c
}

// readAnswers reads until it has count answers.
func (a *answerTest) readAnswers(t *testing.T, count int) []livetrace.Answer {
	t.Helper()
	var got []livetrace.Answer
	for deadline := time.Now().Add(3 * time.Minute); len(got) < count; time.Sleep(time.Millisecond) {
		now := time.Now().Add(a.clockOffset)
		answers, lost, err := a.answers.Read(now, now.Add(-time.Hour))
		if err != nil || lost > 0 || time.Now().After(deadline) {
			t.Fatalf("want %d answers within 3 minutes, got %+v; %d events lost, error %v", count,
				got, lost, err)
		}
		got = append(got, answers...)
	}
	return got
}

// listen accepts TCP connections at the neighbor and calls handle for each connection.
func (a *answerTest) listen(t *testing.T, port int, handle func(c *net.TCPConn)) {
	t.Helper()
	err := a.Neighbor.Do(func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				handle(c.(*net.TCPConn))
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deleteEntries deletes the conntrack entries, as the kernel does when they expire.
func (a *answerTest) deleteEntries(t *testing.T) {
	t.Helper()
	if err := a.Pod.Do(func() error {
		return netlink.ConntrackTableFlush(netlink.ConntrackTable)
	}); err != nil {
		t.Fatal(err)
	}
}

// results returns the Result of each answer.
func results(answers []livetrace.Answer) []livetrace.Result {
	var list []livetrace.Result
	for _, a := range answers {
		list = append(list, a.Result)
	}
	return list
}

func TestAnswers(t *testing.T) {
	a := newAnswerTest(t)
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T)
		kind    int
		port    int
		want    []livetrace.Result
		by      string // the answering address, "" for the destination
	}{
		{
			name: "a listener accepts",
			prepare: func(t *testing.T) {
				a.listen(t, 80, func(c *net.TCPConn) { t.Cleanup(func() { _ = c.Close() }) })
			},
			kind: unix.SOCK_STREAM, port: 80, want: []livetrace.Result{livetrace.Connected},
		},
		{
			name: "the proxy of the pod accepts",
			prepare: func(t *testing.T) {
				err := a.Pod.Do(func() error {
					l, err := net.Listen("tcp4", ":15001")
					if err == nil {
						t.Cleanup(func() { _ = l.Close() })
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			},
			kind: unix.SOCK_STREAM, port: 443, want: []livetrace.Result{livetrace.Connected},
			by: "127.0.0.1:15001",
		},
		{
			name: "no socket listens", prepare: func(*testing.T) {},
			kind: unix.SOCK_STREAM, port: 81, want: []livetrace.Result{livetrace.Refused},
		},
		{
			name: "the listener resets the connection",
			prepare: func(t *testing.T) {
				a.listen(t, 82, func(c *net.TCPConn) {
					_ = c.SetLinger(0)
					_ = c.Close()
				})
			},
			kind: unix.SOCK_STREAM, port: 82,
			want: []livetrace.Result{livetrace.Connected, livetrace.Reset},
		},
		{
			name: "a datagram is answered",
			prepare: func(t *testing.T) {
				err := a.Neighbor.Do(func() error {
					c, err := net.ListenPacket("udp4", ":53")
					if err != nil {
						return err
					}
					t.Cleanup(func() { _ = c.Close() })
					go func() {
						var buffer [8]byte
						if _, from, err := c.ReadFrom(buffer[:]); err == nil {
							_, _ = c.WriteTo([]byte("y"), from)
						}
					}()
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			},
			kind: unix.SOCK_DGRAM, port: 53, want: []livetrace.Result{livetrace.Answered},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.prepare(t)
			connection := a.openWatched(t, c.kind, c.port)
			if c.by == "" {
				c.by = connection.Destination.String()
			}
			got := a.readAnswers(t, len(c.want))
			if !slices.Equal(results(got), c.want) {
				t.Fatalf("got %v, want %v", results(got), c.want)
			}
			for _, answer := range got {
				if answer.Connection != connection || answer.By.String() != c.by {
					t.Errorf("got %+v, want an answer to %+v by %s", answer, connection, c.by)
				}
			}
		})
	}
}

// Read keeps the events of a connection until the caller can have read all trace events of the
// first packet, even if the caller reads late.
func TestAnswerBeforeItsConnectionIsWatched(t *testing.T) {
	a := newAnswerTest(t)
	read := func(now time.Time) []livetrace.Answer {
		t.Helper()
		answers, _, err := a.answers.Read(now, now.Add(-time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return answers
	}
	noWatch := func(livetrace.Connection) {}
	kept, forgotten := a.connect(t, unix.SOCK_STREAM, 85, noWatch),
		a.connect(t, unix.SOCK_STREAM, 86, noWatch)
	now := time.Now()
	for range 2 { // the second read is an hour later
		if got := read(now); len(got) > 0 {
			t.Errorf("got %+v, want no answers to connections that are not watched", got)
		}
		now = now.Add(time.Hour)
	}
	packetTime := now.Add(time.Minute) // the trace events are read after the conntrack event
	a.answers.Watch(kept, packetTime)
	got := read(now)
	if !slices.Equal(results(got), []livetrace.Result{livetrace.Refused}) ||
		got[0].Connection != kept || !got[0].Time.Equal(packetTime) {
		t.Errorf("got %+v, want a refusal of %+v at %v", got, kept, packetTime)
	}
	a.answers.Watch(forgotten, time.Time{})
	if got := read(now); len(got) > 0 {
		t.Errorf("got %+v, want no answer from events that were discarded", got)
	}
}

// If the entry of an unanswered connection is deleted after its timeout, the connection timed out.
func TestExpiredConnectionTimesOut(t *testing.T) {
	a := newAnswerTest(t)
	runIn(t, a.Neighbor, "nft", "table ip silent { chain input { type filter hook input "+
		"priority 0; ct state new drop; }; }")
	a.openWatched(t, unix.SOCK_STREAM, 83)
	a.openWatched(t, unix.SOCK_DGRAM, 84)
	for a.answers.Unanswered() < 2 {
		now := time.Now()
		if got, _, err := a.answers.Read(now, now.Add(-time.Hour)); err != nil || len(got) > 0 {
			t.Fatalf("got %+v, error %v, want no answer", got, err)
		}
	}
	if !a.answers.IsWaiting() {
		t.Error("IsWaiting returns false before the entries expire, want true")
	}
	a.clockOffset = 10 * time.Minute
	a.deleteEntries(t)
	if got := results(a.readAnswers(t, 2)); !slices.Equal(got,
		[]livetrace.Result{livetrace.TimedOut, livetrace.TimedOut}) {
		t.Errorf("got %v, want two connections that timed out", got)
	}
	if a.answers.IsWaiting() {
		t.Error("IsWaiting returns true after the connections timed out, want false")
	}
}

// sendDatagrams sends a datagram to each port of the neighbor from first to last, and returns the
// connections.
func (a *answerTest) sendDatagrams(t *testing.T, first, last int) []livetrace.Connection {
	t.Helper()
	fd, source := a.socket(t, unix.SOCK_DGRAM)
	var sent []livetrace.Connection
	for port := first; port <= last; port++ {
		to := &unix.SockaddrInet4{Addr: a.NeighborIP4.As4(), Port: port}
		if err := unix.Sendto(fd, []byte("x"), 0, to); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, livetrace.Connection{
			Protocol: rules.UDP, Source: source,
			Destination: netip.AddrPortFrom(a.NeighborIP4, uint16(port)),
		})
	}
	return sent
}

// blockNeighbor makes the neighbor drop all packets.
func (a *answerTest) blockNeighbor(t *testing.T) {
	t.Helper()
	runIn(t, a.Neighbor, "nft", "table ip silent { chain input { type filter hook prerouting "+
		"priority -300; drop; }; }")
}

// A call of Read handles a limited number of events, so that it also returns if connections begin
// faster than Read handles their events.
func TestReadIsLimited(t *testing.T) {
	const limit = 4096
	a := newAnswerTest(t)
	a.blockNeighbor(t)
	for _, c := range a.sendDatagrams(t, 1, limit+100) {
		a.answers.Watch(c, time.Time{})
	}
	now := time.Now()
	for i, want := range []int{limit, limit + 100} {
		_, lost, err := a.answers.Read(now, now.Add(-time.Hour))
		if n := a.answers.Unanswered(); n != want || lost > 0 || err != nil {
			t.Errorf("call %d: %d connections have an entry, %d events are lost, error %v; want %d "+
				"connections and none lost", i+1, n, lost, err, want)
		}
	}
}

// Read keeps a limited number of events of connections that are not watched: the latest. The other
// events count as lost.
func TestKeptEventsAreLimited(t *testing.T) {
	const limit, chunk, chunks = 1 << 14, 4000, 5
	a := newAnswerTest(t)
	a.blockNeighbor(t)
	now := time.Now()
	var sent []livetrace.Connection
	var lost uint32
	for i := range chunks {
		sent = append(sent, a.sendDatagrams(t, i*chunk+1, (i+1)*chunk)...)
		_, n, err := a.answers.Read(now, now.Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		lost += n
	}
	if want := uint32(chunks*chunk - limit); lost != want {
		t.Errorf("%d events of %d are lost, want %d", lost, len(sent), want)
	}
	a.answers.Watch(sent[lost-1], time.Time{})
	for _, c := range sent[lost:] {
		a.answers.Watch(c, time.Time{})
	}
	if _, n, err := a.answers.Read(now, now); err != nil || n > 0 || a.answers.Unanswered() != limit {
		t.Errorf("%d connections have an entry, %d events are lost, error %v, want %d and 0",
			a.answers.Unanswered(), n, err, limit)
	}
}
