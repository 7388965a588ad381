package bench

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A rawNetlink applies a ruleset by sending messages that were encoded before the measurement: a
// request to add an address to lo, and a transaction with the rules. Its time is the lower bound
// for every program.
type rawNetlink struct{ rules, address []byte }

// newRawNetlink encodes a ruleset whose routing consists of one address of lo.
func newRawNetlink(rs rules.Ruleset) (rawNetlink, error) {
	batch, err := nft.Encode(rs)
	if err != nil {
		return rawNetlink{}, err
	}
	if len(rs.Routing.Policies) > 0 || len(rs.Routing.LoopbackAddrs) != 1 {
		return rawNetlink{}, fmt.Errorf(
			"routing %v: want one address of lo and no policy routes", rs.Routing)
	}
	address := nl.NewNetlinkRequest(unix.RTM_NEWADDR,
		unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	header := nl.NewIfAddrmsg(unix.AF_INET6)
	header.Prefixlen, header.Flags, header.Index = 128, unix.IFA_F_NODAD, 1 // lo
	address.AddData(header)
	address.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rs.Routing.LoopbackAddrs[0].AsSlice()))
	return rawNetlink{rules: batch.Bytes(), address: address.Serialize()}, nil
}

// apply sends the messages in the namespace.
func (raw rawNetlink) apply(ns *netns.NS) error {
	return ns.Do(func() error {
		if err := exchange(unix.NETLINK_ROUTE, raw.address); err != nil {
			return err
		}
		return exchange(unix.NETLINK_NETFILTER, raw.rules)
	})
}

// exchange opens a socket, sends the request, waits for the acknowledgment and closes the socket.
func exchange(protocol int, request []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
		len(request)); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if _, err := unix.Write(fd, request); err != nil {
		return os.NewSyscallError("write", err)
	}
	var answer [4096]byte
	if _, err := unix.Read(fd, answer[:]); err != nil {
		return os.NewSyscallError("read", err)
	}
	// The acknowledgment contains a negative error number, or 0.
	if errno := int32(nl.NativeEndian().Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		return fmt.Errorf("the kernel rejected a netlink request: %w", unix.Errno(-errno))
	}
	return nil
}
