package route

import (
	"encoding/binary"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// native is the order of bytes in netlink. A pointer, since a copy would be made when the program
// starts.
var native = &binary.NativeEndian

// lookingRequest asks for ::6 on lo, and for the policy rules of all families.
func lookingRequest() []byte {
	return quick.looking.of(func() []byte { return sixAndRules(nl.NewNetlinkRequest(unix.RTM_GETADDR, 0)) })
}

// addingRequest asks to add ::6 to lo, as [loopbackAddr] does, and for the policy rules of all
// families.
func addingRequest() []byte {
	return quick.adding.of(func() []byte {
		return sixAndRules(nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK),
			nl.NewRtAttr(unix.IFA_ADDRESS, rules.PassthroughIPv6().AsSlice()),
			nl.NewRtAttr(unix.IFA_FLAGS, native.AppendUint32(nil, unix.IFA_F_NODAD)))
	})
}

// quick are the requests of a quick look, which are always the same.
var quick struct{ looking, adding request }

// A request is made when it is first sent: a variable of sync.OnceValue would be one when the
// program starts.
type request struct {
	once  sync.Once
	bytes []byte
}

func (r *request) of(write func() []byte) []byte {
	r.once.Do(func() { r.bytes = write() })
	return r.bytes
}

// sixAndRules completes a request about ::6 on lo, and asks for the policy rules of all families as
// well.
func sixAndRules(six *nl.NetlinkRequest, attributes ...*nl.RtAttr) []byte {
	m := nl.NewIfAddrmsg(unix.AF_INET6)
	m.Prefixlen, m.Index = 128, loopback
	six.AddData(m)
	six.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rules.PassthroughIPv6().AsSlice()))
	for _, a := range attributes {
		six.AddData(a)
	}
	list := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	list.AddData(nl.NewRtMsg())
	return append(six.Serialize(), list.Serialize()...)
}

// addressesRequest asks for the addresses of all families.
func addressesRequest() []byte {
	list := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	list.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	return list.Serialize()
}

// routesRequest asks for the routes of a policy route's table.
func routesRequest(p rules.PolicyRoute) []byte {
	list := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	// The kernel refuses filters of which it knows nothing, such as the defaults of NewRtMsg.
	list.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(addressFamily(p.Family))}})
	list.AddData(nl.NewRtAttr(unix.RTA_TABLE, native.AppendUint32(nil, p.Table)))
	return list.Serialize()
}

// FamilyOf is the family of the kernel's number (AF_INET, AF_INET6); inet for all others.
func FamilyOf(number int) rules.Family {
	switch number {
	case unix.AF_INET:
		return rules.IPv4
	case unix.AF_INET6:
		return rules.IPv6
	}
	return rules.Inet
}
