package watch_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A changer changes rules faster than a program can: each transaction turns a table off or on.
type changer struct {
	fd    int
	off   byte
	flags uint16 // of the message, beside the usual ones
}

// change returns a changer in a namespace. Its socket has the port id, or one of the kernel's
// choice if that is 0.
func change(t testing.TB, ns *netns.NS, port uint32) *changer {
	t.Helper()
	c := &changer{}
	err := ns.Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.fd) })
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}); err != nil {
		t.Fatal(err)
	}
	c.commit(t) // makes the table
	return c
}

// commit is one transaction.
func (c *changer) commit(t testing.TB) {
	t.Helper()
	c.off ^= unix.NFT_TABLE_F_DORMANT
	begin := netfilter(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := []byte{6, 0, unix.NFTA_TABLE_NAME, 0, 'x', 0, 0, 0, 8, 0, unix.NFTA_TABLE_FLAGS, 0, 0, 0, 0, c.off}
	add := netfilter(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|c.flags, 0, table)
	end := netfilter(unix.NFNL_MSG_BATCH_END, 0, unix.NFNL_SUBSYS_NFTABLES, nil)
	if _, err := unix.Write(c.fd, append(append(begin, add...), end...)); err != nil {
		t.Fatal(err)
	}
}

// netfilter is a message of nfnetlink about what is in both families.
func netfilter(kind, flags, resource uint16, attributes []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attributes)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...) // sequence number and port id
	m = append(m, unix.NFPROTO_INET, unix.NFNETLINK_V0)
	return append(binary.BigEndian.AppendUint16(m, resource), attributes...)
}
