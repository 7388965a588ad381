package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// native is the byte order of netlink.
var native = binary.NativeEndian

// attributes returns the attributes after a header of 4 bytes: struct nfgenmsg, or struct rtgenmsg
// with its padding.
func attributes(body []byte) nlmsg.Attributes { return nlmsg.Attributes(body[min(4, len(body)):]) }

// readGeneration decodes the end of a transaction.
func (e *Event) readGeneration(body []byte) {
	a := attributes(body)
	e.Generation, e.PID = a.Number(unix.NFTA_GEN_ID), a.Number(unix.NFTA_GEN_PROC_PID)
	e.Process = a.Text(unix.NFTA_GEN_PROC_NAME)
}

// nsid returns the id of a namespace, and whether the message has one.
func nsid(body []byte) (int32, bool) {
	id, ok := attributes(body).HostNumber(unix.NETNSA_NSID)
	return int32(id), ok
}

// nowhere stands for the listener's own namespace in what it hears, even if that has an id in
// itself. No id is negative.
const nowhere int32 = -1

// origin is the id of the namespace where a message comes from, from what came beside it.
func origin(control []byte) int32 {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return nowhere
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int32(native.Uint32(data))
		}
		control = rest
	}
	return nowhere
}
