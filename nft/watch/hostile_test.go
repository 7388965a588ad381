package watch_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestAPodCannotGuessAPortIDThatSuppressesReports covers transactions that request an echo: the
// kernel does not notify sockets with the port id of the sender.
func TestAPodCannotGuessAPortIDThatSuppressesReports(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	ports := watch.Ports(t, w)
	for _, row := range []struct {
		name     string
		port     uint32
		reported bool
	}{
		{
			"the port id that the kernel assigns to the first socket of a process",
			uint32(os.Getpid()), true,
		},
		{"the port id of the watcher", ports[0], false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newChanger(t, pod, row.port)
			checkRulesEvent(t, w, pod)
			c.messageFlags = unix.NLM_F_ECHO
			c.commit(t)
			if !row.reported {
				checkNoEvent(t, w)
				return
			}
			checkRulesEvent(t, w, pod)
		})
	}
	if other := watch.Ports(t, open(t, agent)); ports[0] == other[0] || ports[0] == ports[1] {
		t.Errorf("the port ids are %v and %v, want different ones", ports, other)
	}
}

func TestForgedNotificationsAreIgnored(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	err := pod.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const generation = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
		group := &unix.SockaddrNetlink{
			Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1),
		}
		return unix.Sendto(fd, netfilterMessage(generation, 0, 0, nil), 0, group)
	})
	if err != nil {
		t.Fatal(err)
	}
	checkNoEvent(t, w)
}

// TestForgedAnswersAreRefused covers a process in the agent's namespace that sends a datagram to
// the socket for requests.
func TestForgedAnswersAreRefused(t *testing.T) {
	agent := netnstest.New(t)
	port := watch.IDClientPort(t, open(t, agent))
	if err := agent.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}
		err = unix.Sendto(fd, make([]byte, unix.NLMSG_HDRLEN), 0, to)
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("error %v, want %v", err, unix.ECONNREFUSED)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTheAnswerToAnEarlierRequestIsIgnored covers an abandoned request, whose answer may precede
// the answer to the next request.
func TestTheAnswerToAnEarlierRequestIsIgnored(t *testing.T) {
	agent, first, pod := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, first)
	watch.AbandonRequest(t, w, first)
	add(t, w, pod)
	checkReported(t, w, first, pod)
}

// TestAClosedWatcherSendsNoRequest checks that Add does not use the number of the closed
// descriptor, which may refer to another file by then.
func TestAClosedWatcherSendsNoRequest(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	var w *watch.Watcher
	if err := agent.Do(func() (err error) { w, err = watch.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	number := watch.IDClientFD(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		0)
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
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
	var buf [64]byte
	if n, _, err := unix.Recvfrom(pair[1], buf[:], 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("Add sent %x to the socket that reuses the number (error %v), want no message",
			buf[:max(n, 0)], err)
	}
}

// TestLostEventsAreReported covers messages that exceed the buffer. The loss is reported, and so is
// a later change.
func TestLostEventsAreReported(t *testing.T) {
	agent, pod, quiet := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod, quiet)
	watch.ShrinkBuffers(t, w)
	c := newChanger(t, pod, 0)
	checkRulesEvent(t, w, pod)
	for range 1000 {
		c.commit(t)
	}
	losses := 0
	for count := 0; losses == 0; count++ {
		switch e := nextEvent(t, w); {
		case e == watch.Event{Lost: true}:
			losses++
		case e.NS != pod.ID() || count > 10:
			t.Fatalf("got %+v after %d other events, want an event with Lost set", e, count)
		}
	}
	// Later messages of the pod may overflow the buffer again. If the change of the quiet namespace
	// is lost too, make another change.
	for ; losses < 4; losses++ {
		nft(t, quiet, fmt.Sprint("add table inet x", losses))
		e := nextEvent(t, w)
		for e.NS == pod.ID() {
			e = nextEvent(t, w)
		}
		if e.NS == quiet.ID() {
			return
		}
	}
	t.Error("no event of the quiet namespace, want one after its changes")
}

// TestLateRemovalOfAnIDKeepsItsNextNamespace covers the message about a removed id that arrives
// when another namespace already has the id.
func TestLateRemovalOfAnIDKeepsItsNextNamespace(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	watch.RemoveAll(w)
	checkReported(t, w, pod)
}

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	agent := netnstest.New(t)
	for name, bit := range map[string]uint32{
		"CAP_NET_BROADCAST": 1 << unix.CAP_NET_BROADCAST, "CAP_NET_ADMIN": 1 << unix.CAP_NET_ADMIN,
	} {
		t.Run(name, func(t *testing.T) {
			// Do terminates the thread, which cannot restore its namespace without capabilities.
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
				t.Errorf("error %v, want a permission error that names %s", err, name)
			}
		})
	}
}

func TestAWatcherLeaksNoDescriptors(t *testing.T) {
	agent := netnstest.New(t)
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
	before := netnstest.Descriptors(t)
	for range 20 {
		cycle()
	}
	rulestest.Eventually(t, fmt.Sprintf("%d open descriptors", before), func() bool {
		return netnstest.Descriptors(t) <= before
	})
}
