package istio_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// timeout is the time limit for events that normally occur immediately.
const timeout = 10 * time.Second

// confirmByTruncation sends the witness as a datagram with a wrong length, and then a valid
// datagram. conntrack treats a datagram with a wrong length as invalid (udp_error in
// net/netfilter/nf_conntrack_proto_udp.c).
func confirmByTruncation(t *testing.T, w witnessPods) diff.Pair[string] {
	p := w.class.Witness
	if p.Protocol != rules.UDP || p.State != rules.Invalid || !p.Destination.Addr().Is4() {
		t.Fatalf("the witness is not an invalid datagram: %s", p)
	}
	if !arrives(t, w.native, p) {
		t.Errorf("with istio-nftables' rules the invalid datagram does not arrive: %s", p)
	}
	if arrives(t, w.legacy, p) {
		t.Errorf("with istio-iptables' rules the invalid datagram arrives: %s", p)
	}
	return diff.Pair[string]{Left: "the datagram arrives", Right: "the datagram does not arrive"}
}

// Lengths of the two datagrams, by which the receiver distinguishes them.
const (
	truncatedLen = 12
	validLen     = 16
)

// arrives sends the invalid datagram and then the valid one from the neighbor, and reports whether
// the invalid one arrived. Datagrams are not reordered.
func arrives(t *testing.T, l loadedPod, p rules.Packet) bool {
	t.Helper()
	in, out := rawSocket(t, l.Pod, p.Destination.Addr()), rawSocket(t, l.Neighbor, p.Source.Addr())
	for _, length := range []int{truncatedLen, validLen} {
		datagram := make([]byte, length)
		binary.BigEndian.PutUint16(datagram, p.Source.Port())
		binary.BigEndian.PutUint16(datagram[2:], p.Destination.Port())
		binary.BigEndian.PutUint16(datagram[4:], validLen)
		if err := unix.Sendto(int(out.Fd()), datagram, 0,
			&unix.SockaddrInet4{Addr: p.Destination.Addr().As4()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 256)
	n, err := in.Read(buffer)
	if err != nil {
		t.Fatalf("neither datagram arrives: %v", err)
	}
	headerLen := int(buffer[0]&0xf) * 4
	return n-headerLen == truncatedLen
}

// rawSocket opens a raw socket for UDP that is bound to the address.
func rawSocket(t *testing.T, ns *netns.NS, a netip.Addr) *os.File {
	t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.IPPROTO_UDP)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Addr: a.As4()})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "raw")
	t.Cleanup(func() { _ = f.Close() })
	return f
}
