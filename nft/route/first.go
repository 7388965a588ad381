package route

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// ensureQuickly is Ensure in the calling thread's namespace where that has all of want already, or lacks ::6 alone, and nothing else of
// ours is there: that is so for most rules, first and later ones, and takes a third of the time of all that Ensure has to look at
// otherwise. Added tells that it has added all of want. If it is not done, Ensure has everything to do, and to say what is wrong.
func ensureQuickly(want rules.Routing) (added, done bool) {
	if len(want.LoopbackAddrs) > 1 {
		return false, false
	}
	q, err := newQuickLook(want)
	if err != nil {
		return false, false
	}
	defer q.close()
	if q.look() != nil {
		return false, false
	}
	if len(want.Policies) == 0 && len(want.LoopbackAddrs) == 1 && !q.passthrough {
		added = q.change(sixRequest()) == nil
		return added, added
	}
	return false, q.complete() == nil
}

// change sends a request, and reads the kernel's acknowledgement, which is there when the request returns.
func (q *quickLook) change(request []byte) error {
	if _, err := unix.Write(q.fd, request); err != nil {
		return err
	}
	n, err := q.receive()
	if err != nil {
		return err
	}
	return acknowledged(q.buf[:n])
}

// acknowledged fails unless an answer is one acknowledgement.
func acknowledged(answer []byte) error {
	if len(answer) < unix.NLMSG_HDRLEN+4 || native.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errUnclear
	}
	if errno := int32(native.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		return unix.Errno(-errno)
	}
	return nil
}

// sixRequest asks to add ::6, as [loopbackAddr] does.
func sixRequest() []byte {
	add := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	m := nl.NewIfAddrmsg(unix.AF_INET6)
	m.Prefixlen, m.Index = 128, loopback
	add.AddData(m)
	add.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rules.PassthroughIPv6().AsSlice()))
	add.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, rules.PassthroughIPv6().AsSlice()))
	add.AddData(nl.NewRtAttr(unix.IFA_FLAGS, native.AppendUint32(nil, unix.IFA_F_NODAD)))
	return add.Serialize()
}
