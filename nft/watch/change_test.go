package watch_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A changer changes rules at a high rate, without starting a program: each transaction toggles the
// dormant flag of a table.
type changer struct {
	fd         int
	tableFlags byte
	// messageFlags are additional flags of the message that changes the table.
	messageFlags uint16
}

// newChanger returns a changer in a namespace. port is the port id of the changer's socket. If port
// is 0, the kernel chooses the id.
func newChanger(t testing.TB, ns *netns.NS, port uint32) *changer {
	t.Helper()
	c := &changer{}
	err := ns.Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.fd) })
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK, Pid: port,
	}); err != nil {
		t.Fatal(err)
	}
	c.commit(t) // creates the table
	return c
}

// commit sends one transaction.
func (c *changer) commit(t testing.TB) {
	t.Helper()
	c.tableFlags ^= unix.NFT_TABLE_F_DORMANT
	begin := netfilterMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := []byte{
		6, 0, unix.NFTA_TABLE_NAME, 0, 'x', 0, 0, 0,
		8, 0, unix.NFTA_TABLE_FLAGS, 0, 0, 0, 0, c.tableFlags,
	}
	add := netfilterMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE,
		unix.NLM_F_CREATE|c.messageFlags, 0, table)
	end := netfilterMessage(unix.NFNL_MSG_BATCH_END, 0, unix.NFNL_SUBSYS_NFTABLES, nil)
	if _, err := unix.Write(c.fd, append(append(begin, add...), end...)); err != nil {
		t.Fatal(err)
	}
}

// netfilterMessage encodes an nfnetlink message of the family inet.
func netfilterMessage(kind, flags, resource uint16, attributes []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attributes)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...) // sequence number and port id
	m = append(m, unix.NFPROTO_INET, unix.NFNETLINK_V0)
	return append(binary.BigEndian.AppendUint16(m, resource), attributes...)
}
