package istio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// confirmByOrphan creates an orphaned TCP connection inside each pod: the sender sends more data
// than the receiver reads, and closes its socket. The kernel then probes the receiver's window
// every few hundred milliseconds. After the conntrack entry is deleted, the next probe is the
// witness: the first packet of a new conntrack entry, over lo and without an owner. If the probe is
// not captured, the remaining data arrives. The result describes what happens in each pod.
func confirmByOrphan(t *testing.T, w witnessPods) diff.Pair[string] {
	p := w.class.Witness
	if p.Owner != nil || p.Protocol != rules.TCP || p.Destination.Addr() != testbed.PodIP4 {
		t.Fatalf("witness %s, want a TCP packet to the pod's own address without an owner", p)
	}
	broken := deliver(t, w.native, p.Destination)
	if broken == nil {
		t.Fatal("with istio-nftables' rules all data arrives, want a broken connection")
	}
	if err := deliver(t, w.legacy, p.Destination); err != nil {
		t.Errorf("with istio-iptables' rules the connection is broken: %v, want all data", err)
	}
	return diff.Pair[string]{Left: broken.Error(), Right: "all data arrives"}
}

// deliver creates an orphaned connection, and flushes the pod's conntrack table. It returns nil if
// the receiver then receives all data, and otherwise an error.
func deliver(t *testing.T, l loadedPod, to netip.AddrPort) error {
	t.Helper()
	var client, server *net.TCPConn
	err := l.Pod.Do(func() error {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		if client, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to)); err != nil {
			return err
		}
		server, err = listener.AcceptTCP()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	from := client.LocalAddr().(*net.TCPAddr).AddrPort().Port()
	sent := fill(t, client)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	flushConntrack(t, l, from)
	if err := server.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	received, err := io.Copy(io.Discard, server)
	if err == nil && received != sent {
		err = errors.New("the connection ended early")
	}
	return err
}

// fill sends until the receiver's window is closed and the send buffer is full, and returns the
// number of sent bytes. It does not stop when only the buffer is full, because the receiver may
// still accept data in flight.
func fill(t *testing.T, c *net.TCPConn) (sent int64) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<16)
	for {
		var info *unix.TCPInfo
		var writeErr, infoErr error
		err = raw.Control(func(fd uintptr) {
			for writeErr == nil {
				var n int
				if n, writeErr = unix.Write(int(fd), chunk); writeErr == nil {
					sent += int64(n)
				}
			}
			info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		})
		if err != nil || infoErr != nil || !errors.Is(writeErr, unix.EAGAIN) {
			t.Fatalf("fill the send buffer: %v; TCP_INFO: %v; write: %v, want EAGAIN", err, infoErr, writeErr)
		}
		if info.Unacked == 0 && info.Notsent_bytes > 0 {
			return sent
		}
		time.Sleep(time.Millisecond)
	}
}

// flushConntrack flushes the pod's conntrack table, and waits until the connection from the port
// has a new entry or has ended.
func flushConntrack(t *testing.T, l loadedPod, port uint16) {
	t.Helper()
	err := l.Pod.Do(func() error {
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return err
		}
		for end := time.Now().Add(timeout); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
			known, err := isTracked(port)
			if err != nil || known {
				return err
			}
			if exists, err := hasSocket(port); err != nil || !exists {
				return err
			}
		}
		return errors.New("no new conntrack entry")
	})
	if err != nil {
		t.Fatalf("flush conntrack: %v", err)
	}
}

// isTracked reports whether conntrack has an entry for a connection from the port.
func isTracked(port uint16) (bool, error) {
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	return slices.ContainsFunc(flows, func(f *netlink.ConntrackFlow) bool {
		return f.Forward.SrcPort == port
	}), err
}

// hasSocket reports whether the kernel has a TCP socket with the pod's address and the port, with
// or without an owner.
func hasSocket(port uint16) (bool, error) {
	address := testbed.PodIP4.As4()
	local := fmt.Sprintf(": %08X:%04X ", binary.NativeEndian.Uint32(address[:]), port)
	sockets, err := os.ReadFile("/proc/thread-self/net/tcp")
	return strings.Contains(string(sockets), local), err
}
