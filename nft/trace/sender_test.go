package trace_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// sendTo sends a netlink message to a netfilter socket of the namespace.
func sendTo(ns *netns.NS, port uint32) error {
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, multipartMessage(), unix.MSG_DONTWAIT,
			&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port})
	})
}

// multipartMessage returns a message after which a reader expects another one.
func multipartMessage() []byte {
	m := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN)
	m = binary.NativeEndian.AppendUint16(m, unix.NFNL_SUBSYS_NFTABLES<<8)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_MULTI)
	return append(m, make([]byte, unix.NLMSG_HDRLEN-len(m))...)
}

// netfilterPorts returns the port ids of the netfilter sockets of the namespace.
func netfilterPorts(t *testing.T, ns *netns.NS) (ports []uint32) {
	t.Helper()
	err := ns.Do(func() error {
		list, err := os.ReadFile("/proc/thread-self/net/netlink")
		for line := range strings.Lines(string(list)) {
			var socket string
			var protocol int
			var port uint32
			if n, _ := fmt.Sscan(line, &socket, &protocol, &port); n == 3 && port != 0 &&
				protocol == unix.NETLINK_NETFILTER {
				ports = append(ports, port)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// TestSocketsRefuseMessagesOfProcesses covers a process of the pod that sends messages to the
// sockets of a trace.
func TestSocketsRefuseMessagesOfProcesses(t *testing.T) {
	ns := netnstest.New(t)
	openSession(t, ns, trace.Filter{})
	l, err := trace.OpenLog(ns, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var ports []uint32
	// The session has a socket for its table and one for events. The socket with which it has
	// searched for an earlier trace may be closed later.
	rulestest.Eventually(t, "the namespace has three netfilter sockets", func() bool {
		ports = netfilterPorts(t, ns)
		return len(ports) == 3
	})
	for _, port := range ports {
		if err := sendTo(ns, port); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("send to socket %d: error %v, want %v", port, err, unix.ECONNREFUSED)
		}
	}
}

// TestRemoveIgnoresMessagesOfProcesses sends messages, all of which announce another one, to the
// port id that the kernel assigns to the first socket of a process in a namespace: the process id.
func TestRemoveIgnoresMessagesOfProcesses(t *testing.T) {
	ns := netnstest.New(t)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = sendTo(ns, uint32(os.Getpid()))
			}
		}
	}()
	defer func() { close(end); <-ended }()
	for range 20 {
		addTables(t, ns, "table inet "+trace.Table+" {}")
		removed := make(chan error, 1)
		go func() {
			_, err := trace.Remove(ns)
			removed <- err
		}()
		select {
		case err := <-removed:
			if err != nil || tableExists(t, ns) {
				t.Fatalf("error %v, want no error and no table", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Remove has not returned after 20 s")
		}
	}
}
