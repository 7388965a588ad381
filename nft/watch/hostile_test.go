package watch_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
)

// The kernel keeps a message from sockets that have the port id of the one that made the change and
// wants an echo.
func TestAPodCannotGuessAPortThatMakesItUnheard(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	known := watch.Ports(t, w)
	for _, row := range []struct {
		name  string
		port  uint32
		heard bool
	}{
		{"the port that the kernel gives to the first socket of a process", uint32(os.Getpid()), true},
		{"the port of the watcher, if it were known", known[0], false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := change(t, pod, row.port)
			if e := next(t, w); !e.Rules {
				t.Errorf("heard %+v", e)
			}
			c.flags = unix.NLM_F_ECHO
			c.commit(t)
			if !row.heard {
				nothing(t, w)
				return
			}
			if e := next(t, w); !e.Rules {
				t.Errorf("heard %+v", e)
			}
		})
	}
	if other := watch.Ports(t, open(t, agent)); known[0] == other[0] || known[0] == known[1] {
		t.Errorf("the ports are %v and %v", known, other)
	}
}

func TestMessagesOfProcessesAreNotHeard(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	err := pod.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const generation = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
		group := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}
		return unix.Sendto(fd, netfilter(generation, 0, 0, nil), 0, group)
	})
	if err != nil {
		t.Fatal(err)
	}
	nothing(t, w)
}

// A process of the agent's namespace may answer in the kernel's place, and before it.
func TestAnswersOfProcessesDoNotCount(t *testing.T) {
	agent, first, pod := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, first)
	port, question := watch.Asker(t, w)
	err := agent.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const id = 0 // that of the first one
		answer := make([]byte, 28)
		binary.NativeEndian.PutUint32(answer, 28)
		binary.NativeEndian.PutUint16(answer[4:], unix.RTM_NEWNSID)
		binary.NativeEndian.PutUint32(answer[8:], question+1)
		binary.NativeEndian.PutUint16(answer[20:], 8)
		binary.NativeEndian.PutUint16(answer[22:], unix.NETNSA_NSID)
		binary.NativeEndian.PutUint32(answer[24:], id)
		return unix.Sendto(fd, answer, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port})
	})
	if err != nil {
		t.Fatal(err)
	}
	add(t, w, pod)
	wantHeard(t, w, first, pod)
}

// An answer that was given up may come before that to the next question.
func TestTheAnswerToAnotherQuestionDoesNotCount(t *testing.T) {
	agent, first, pod := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, first)
	watch.GiveUp(t, w, first)
	add(t, w, pod)
	wantHeard(t, w, first, pod)
}

// Who adds a pod while the watcher is closed must not ask, and read from, what has the number of
// its descriptor by then.
func TestAClosedWatcherAsksNobody(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	var w *watch.Watcher
	if err := agent.Do(func() (err error) { w, err = watch.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	number := watch.AskerFD(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	switch number {
	case pair[0]:
	case pair[1]:
		slices.Reverse(pair[:])
	default:
		if err := unix.Dup3(pair[0], number, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(number)
	}
	if err := w.Add(pod); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v, want %v", err, os.ErrClosed)
	}
	var buf [64]byte
	if n, _, err := unix.Recvfrom(pair[1], buf[:], 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("another's peer was sent %x, %v", buf[:max(n, 0)], err)
	}
}

// wantHeard wants that each namespace is heard as itself.
func wantHeard(t *testing.T, w *watch.Watcher, namespaces ...*netns.NS) {
	t.Helper()
	for _, ns := range namespaces {
		nft(t, ns, "add table inet x")
		if e := next(t, w); e.NS != ns.ID() {
			t.Errorf("heard %+v, want a change in %s", e, ns)
		}
	}
}

// What does not fit into the buffer is lost. That is told once, after which everything is heard
// again.
func TestALossIsTold(t *testing.T) {
	agent, pod, quiet := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod, quiet)
	watch.Shrink(t, w)
	c := change(t, pod, 0)
	if e := next(t, w); e.NS != pod.ID() {
		t.Errorf("heard %+v", e)
	}
	for range 1000 {
		c.commit(t)
	}
	losses := 0
	for told := 0; losses == 0; told++ {
		switch e := next(t, w); {
		case e == watch.Event{Lost: true}:
			losses++
		case e.NS != pod.ID() || told > 10:
			t.Fatalf("heard %+v after %d others", e, told)
		}
	}
	// What came between two readings may be a loss of its own, which takes this change with it.
	for ; losses < 4; losses++ {
		nft(t, quiet, fmt.Sprint("add table inet x", losses))
		e := next(t, w)
		for e.NS == pod.ID() {
			e = next(t, w)
		}
		if e.NS == quiet.ID() {
			return
		}
	}
	t.Error("nothing is heard of what is quiet")
}

// The end of an id is told late; by then the next namespace may have it.
func TestTheLateEndOfAnIDForgetsNobodyElse(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	watch.ForgetAll(w)
	nft(t, pod, "add table inet x")
	if e := next(t, w); e.NS != pod.ID() {
		t.Errorf("heard %+v", e)
	}
}

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	agent := netnstest.New(t)
	for name, bit := range map[string]uint32{"CAP_NET_BROADCAST": 1 << unix.CAP_NET_BROADCAST, "CAP_NET_ADMIN": 1 << unix.CAP_NET_ADMIN} {
		t.Run(name, func(t *testing.T) {
			// Do throws the thread away that has lost capabilities.
			err := agent.Do(func() error {
				hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				var data [2]unix.CapUserData
				if err := unix.Capget(&hdr, &data[0]); err != nil {
					return err
				}
				data[0].Effective &^= bit | 1<<unix.CAP_SYS_ADMIN
				if err := unix.Capset(&hdr, &data[0]); err != nil {
					return err
				}
				w, err := watch.Open()
				if err == nil {
					_ = w.Close()
				}
				return err
			})
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNothingLeaks(t *testing.T) {
	agent := netnstest.New(t)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	pod := netnstest.New(t)
	cycle := func() {
		err := agent.Do(func() error {
			w, err := watch.Open()
			if err != nil {
				return err
			}
			return errors.Join(w.Add(pod), w.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := descriptors()
	for range 20 {
		cycle()
	}
	for start := time.Now(); descriptors() > before; runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d descriptors before, %d after", before, descriptors())
		}
	}
}
