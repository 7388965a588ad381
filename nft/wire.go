package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// Numbers from linux/netfilter/nf_tables.h that packages unix and expr lack.
const (
	nftaTableUserdata = 6
	nftTableFlagOwner = 2

	nftaHookDevs = 4

	nftaChainFlags  = 10
	nftChainBinding = 4

	nftaSetDescConcat      = 2
	nftaSetFieldLen        = 1
	nftaSetElemKeyEnd      = 10
	nftaSetElemExpressions = 11
	nftaSetExpr            = 17
	nftaSetExpressions     = 18
	nftSetElemCatchall     = 2
	nftSetConcat           = 0x80
	nftSetExpr             = 0x100

	nftaBitwiseOp    = 6
	nftaBitwiseData  = 7
	nftaBitwiseSreg2 = 8
	// bitwiseMaskXor is NFT_BITWISE_MASK_XOR, the value of nftaBitwiseOp. Kernels before 5.6 lack
	// the attribute, and support only this operation.
	bitwiseMaskXor = 0
	// bitwiseLeftShift and bitwiseRightShift are NFT_BITWISE_LSHIFT and NFT_BITWISE_RSHIFT.
	bitwiseLeftShift  = 1
	bitwiseRightShift = 2

	nftMetaIIFKind  = 26
	nftMetaOIFKind  = 27
	nftMetaTimeNs   = 30
	nftMetaTimeDay  = 31
	nftMetaTimeHour = 32

	nftaOsfDreg    = 1
	nftaTunnelDreg = 2
	nftaXfrmDreg   = 1

	// Comments and byte orders in userdata are a convention of libnftnl (udata.h). The kernel does
	// not interpret them.
	udataComment         = 0
	udataSetKeyByteOrder = 0
	byteOrderHost        = 1
)

// Types of set keys. The nft command uses them to print keys (nftables, include/datatype.h).
const (
	typeProtocol  = 12
	typeIPv4      = 7
	typeIPv6      = 8
	typePort      = 13
	typeUID       = 24
	typeGID       = 25
	typeInterface = 41
)

// interfaceNameLength is the length in bytes of a key that is an interface name, including the
// terminating zero.
const interfaceNameLength = unix.IFNAMSIZ

// messageType returns the type of an nf_tables message on the wire.
func messageType(msg int) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(msg) }

// messages is a buffer of encoded netlink messages.
type messages struct {
	buf   []byte
	start int // the offset of the current message
	// asDumped makes the methods encode as the kernel does in dumps of nf_tables: without the flag
	// NLA_F_NESTED, and with the values of counters even if they are 0. The kernel accepts both
	// forms.
	asDumped bool
}

// native is the byte order of netlink. It is a pointer because a copy would need initialization
// code at program start.
var native = &binary.NativeEndian

// begin starts a message with an nfnetlink header. resource is the header's res_id.
func (m *messages) begin(msgType uint16, flags uint16, seq uint32, family uint8, resource uint16) {
	m.start = len(m.buf)
	m.buf = nlmsg.AppendHeader(m.buf, msgType, flags, seq)
	m.buf = binary.BigEndian.AppendUint16(append(m.buf, family, 0), resource)
}

// end completes the message.
func (m *messages) end() { nlmsg.SetLength(m.buf[m.start:]) }

// beginBatch starts a transaction. The kernel rejects the transaction if the generation of the
// ruleset differs from the given one; 0 means any generation.
func (m *messages) beginBatch(generation uint32) {
	m.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	if generation != 0 {
		m.addNumber(unix.NFNL_BATCH_GENID, generation)
	}
	m.end()
}

// endBatch ends a transaction. seq is the sequence number of the end: the number of the messages
// before it.
func (m *messages) endBatch(seq uint32) {
	m.begin(unix.NFNL_MSG_BATCH_END, 0, seq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.end()
}

// requestAck requests an acknowledgement of the last message.
func (m *messages) requestAck() {
	flags := m.buf[m.start+6:] // nlmsg_flags follows a length of 4 bytes and a type of 2 bytes
	native.PutUint16(flags, native.Uint16(flags)|unix.NLM_F_ACK)
}

// addAttr appends an attribute.
func (m *messages) addAttr(attrType uint16, value []byte) {
	m.addHeader(attrType, len(value))
	m.buf = append(m.buf, value...)
	m.pad(len(value))
}

// addHeader appends the header of an attribute. The length is the length of the value.
func (m *messages) addHeader(attrType uint16, length int) {
	m.buf = appendHeader(m.buf, attrType, unix.NLA_HDRLEN+length)
}

// appendHeader appends the header of an attribute. The length includes the header.
func appendHeader(buf []byte, attrType uint16, length int) []byte {
	return native.AppendUint16(native.AppendUint16(buf, uint16(length)), attrType)
}

// pad appends the padding after a value with the length.
func (m *messages) pad(length int) {
	for ; length%unix.NLA_ALIGNTO != 0; length++ {
		m.buf = append(m.buf, 0)
	}
}

// addText appends an attribute with a string and a terminating zero.
func (m *messages) addText(attrType uint16, s string) {
	m.addHeader(attrType, len(s)+1)
	m.buf = append(append(m.buf, s...), 0)
	m.pad(len(s) + 1)
}

// addNumber appends an attribute with a 32-bit number in network byte order, which nf_tables uses.
func (m *messages) addNumber(attrType uint16, n uint32) {
	m.addHeader(attrType, 4)
	m.buf = binary.BigEndian.AppendUint32(m.buf, n)
}

// addNumber64 appends an attribute with a 64-bit number in network byte order.
func (m *messages) addNumber64(attrType uint16, n uint64) {
	m.addHeader(attrType, 8)
	m.buf = binary.BigEndian.AppendUint64(m.buf, n)
}

// beginNest starts a nested attribute and returns its position for endNest.
func (m *messages) beginNest(attrType uint16) int {
	if !m.asDumped {
		attrType |= unix.NLA_F_NESTED
	}
	m.addHeader(attrType, 0)
	return len(m.buf) - unix.NLA_HDRLEN
}

// endNest completes the nested attribute that begins at the position.
func (m *messages) endNest(start int) {
	native.PutUint16(m.buf[start:], uint16(len(m.buf)-start))
}

// addData appends a nested attribute with a constant.
func (m *messages) addData(attrType uint16, value []byte) {
	n := m.beginNest(attrType)
	m.addAttr(unix.NFTA_DATA_VALUE, value)
	m.endNest(n)
}

// attributes is the payload of a message or of a nested attribute.
type attributes = nlmsg.Attributes

// comment returns the comment in the userdata of a rule or a table. Each entry of userdata consists
// of a type of one byte, a length of one byte, and the value.
func comment(userdata []byte) string {
	for len(userdata) >= 2 && len(userdata) >= 2+int(userdata[1]) {
		if userdata[0] == udataComment {
			return nlmsg.Text(userdata[2 : 2+int(userdata[1])])
		}
		userdata = userdata[2+int(userdata[1]):]
	}
	return ""
}

// addComment appends an attribute with userdata that contains only a comment.
func (m *messages) addComment(attrType uint16, text string) {
	length := len(text) + 1
	m.addHeader(attrType, 2+length)
	m.buf = append(m.buf, udataComment, byte(length))
	m.buf = append(append(m.buf, text...), 0)
	m.pad(2 + length)
}
