package route

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Holds takes a quick look at the calling thread's namespace, and tells whether
// it has all of want and nothing else of ours: [Ensure] would add nothing and
// [Prune] remove nothing. If false, only these can tell; policy routes are too
// much for a quick look. It takes a third of Ensure's time, and not the lock of
// the kernel's network configuration, for which others may keep Ensure waiting.
func Holds(want rules.Routing) bool {
	if len(want.Policies) > 0 {
		return false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, quickRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false
	}
	var q quickLook
	for !q.done {
		if err := q.read(fd); err != nil {
			return false
		}
	}
	return q.passthrough == slices.Contains(want.LoopbackAddrs, rules.PassthroughIPv6) &&
		!slices.ContainsFunc(want.LoopbackAddrs, func(a netip.Addr) bool { return a != rules.PassthroughIPv6 })
}

// quickRequest asks for ::6 on lo, and for the policy rules of all families. The
// kernel has begun to answer when it is sent.
var quickRequest = sync.OnceValue(func() []byte {
	six := nl.NewNetlinkRequest(unix.RTM_GETADDR, 0)
	m := nl.NewIfAddrmsg(unix.AF_INET6)
	m.Prefixlen, m.Index = 128, loopback
	six.AddData(m)
	six.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rules.PassthroughIPv6.AsSlice()))
	list := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	list.AddData(nl.NewRtMsg())
	return append(six.Serialize(), list.Serialize()...)
})

// errUnclear ends a quick look.
var errUnclear = errors.New("the quick look does not tell")

// quickLook is what is known from the answers so far.
type quickLook struct {
	answered    bool // the question for ::6
	passthrough bool // ::6 is there
	done        bool
}

// read reads some of the answers.
func (q *quickLook) read(fd int) error {
	// More than the kernel puts into a message of which it does not know the
	// reader (NLMSG_GOODSIZE); for a longer one it would say so.
	buf := make([]byte, 8<<10)
	n, _, flags, _, err := unix.Recvmsg(fd, buf, nil, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(buf[:n])
	if err != nil || flags&unix.MSG_TRUNC != 0 {
		return errUnclear
	}
	for _, m := range messages {
		if err := q.message(m); err != nil {
			return err
		}
	}
	return nil
}

func (q *quickLook) message(m syscall.NetlinkMessage) error {
	if m.Header.Flags&unix.NLM_F_DUMP_INTR != 0 {
		return errUnclear
	}
	switch m.Header.Type {
	case unix.RTM_NEWADDR:
		q.answered, q.passthrough = true, true
	case unix.NLMSG_ERROR:
		absent := len(m.Data) >= 4 && unix.Errno(-int32(nl.NativeEndian().Uint32(m.Data))) == unix.EADDRNOTAVAIL
		if q.answered || !absent {
			return errUnclear
		}
		q.answered = true
	case unix.RTM_NEWRULE:
		return atAnotherPriority(m.Data)
	case unix.NLMSG_DONE:
		failed := len(m.Data) >= 4 && nl.NativeEndian().Uint32(m.Data) != 0
		if failed || !q.answered {
			return errUnclear
		}
		q.done = true
	}
	return nil
}

// atAnotherPriority fails for a policy rule that may be ours.
func atAnotherPriority(rule []byte) error {
	if len(rule) < unix.SizeofRtMsg {
		return errUnclear
	}
	attrs, err := nl.ParseRouteAttr(rule[unix.SizeofRtMsg:])
	if err != nil {
		return err
	}
	for _, a := range attrs {
		if a.Attr.Type == nl.FRA_PRIORITY && len(a.Value) >= 4 && nl.NativeEndian().Uint32(a.Value) == rules.PolicyPriority {
			return errUnclear
		}
	}
	return nil
}
