package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// native is the byte order of netlink.
var native = binary.NativeEndian

// attributes returns the attributes after a header of 4 bytes, which is struct nfgenmsg or struct
// rtgenmsg with its padding.
func attributes(body []byte) nlmsg.Attributes { return nlmsg.Attributes(body[min(4, len(body)):]) }

// readGeneration decodes a message of type [newGeneration].
func (e *Event) readGeneration(body []byte) {
	a := attributes(body)
	e.Generation, e.PID = a.Number(unix.NFTA_GEN_ID), a.Number(unix.NFTA_GEN_PROC_PID)
	e.Process = a.Text(unix.NFTA_GEN_PROC_NAME)
}

// nsid returns the namespace id in a message, and whether the message has one.
func nsid(body []byte) (int32, bool) {
	id, ok := attributes(body).HostNumber(unix.NETNSA_NSID)
	return int32(id), ok
}

// ownID represents the watcher's own namespace: the kernel adds no id to messages from there. Valid
// ids are not negative.
const ownID int32 = -1

// origin returns the id of the namespace that a message comes from. It reads the id from the
// control messages that recvmsg(2) has returned.
func origin(control []byte) int32 {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return ownID
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int32(native.Uint32(data))
		}
		control = rest
	}
	return ownID
}
