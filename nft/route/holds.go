package route

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Holds takes a quick look at the calling thread's namespace, and reports whether
// it has all of want and nothing else of ours: [Ensure] need not add anything,
// and [Prune] would remove nothing. If false, only these can tell. It takes a
// fraction of Ensure's time, and since Linux 6.10 not the lock of the kernel's
// network configuration, for which others may keep Ensure waiting.
func Holds(want rules.Routing) bool {
	if slices.ContainsFunc(want.LoopbackAddrs, func(a netip.Addr) bool { return a != rules.PassthroughIPv6() }) {
		return false
	}
	q, err := newQuickLook(want)
	if err != nil {
		return false
	}
	defer q.close()
	return q.look() == nil && q.complete() == nil
}

// errUnclear ends a quick look.
var errUnclear = errors.New("the quick look does not tell")

// errForeign reports an answer that is not from the kernel.
var errForeign = errors.New("another process answers in the kernel's place")

// quickLook is what is known from the answers so far.
type quickLook struct {
	fd   int
	want rules.Routing
	// found are the wanted policy routes of which there is the rule.
	found       []bool
	answered    bool // the question for ::6
	passthrough bool // ::6 is there
	// adding reports that ::6 is to be added, and not asked for; added that it was.
	adding, added bool
	// routed is the policy route whose table is being listed, and routes how often its route is there.
	routed rules.PolicyRoute
	routes int
	buf    *[quickSize]byte
}

// quickSize is more than the kernel puts into a message of which it does not know the reader (NLMSG_GOODSIZE).
const quickSize = 8<<10 + 1

// quickBuffers are kept, as the audit of a node takes many quick looks, one after the other.
var quickBuffers = sync.Pool{New: func() any { return new([quickSize]byte) }}

// newQuickLook opens a socket, to be closed.
func newQuickLook(want rules.Routing) (*quickLook, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &quickLook{fd: fd, want: want, found: make([]bool, len(want.Policies)), buf: quickBuffers.Get().(*[quickSize]byte)}, nil
}

func (q *quickLook) close() {
	_ = unix.Close(q.fd)
	quickBuffers.Put(q.buf)
}

// look fails if anything is not clear, or something of ours but ::6 is there that is not wanted.
func (q *quickLook) look() error { return q.lookBy(lookingRequest()) }

// addSix is look, which adds ::6 where it is not.
func (q *quickLook) addSix() error {
	q.adding = true
	return q.lookBy(addingRequest())
}

// lookBy is look, or addSix, by its request.
func (q *quickLook) lookBy(request []byte) error {
	err := q.list(request)
	if err == nil && !q.answered {
		return errUnclear
	}
	return err
}

// complete fails, after a look, if anything is not there, or ::6 is and is not wanted.
func (q *quickLook) complete() error {
	if q.passthrough != (len(q.want.LoopbackAddrs) > 0) || slices.Contains(q.found, false) {
		return errUnclear
	}
	if len(q.want.Policies) == 0 {
		return nil
	}
	// Without it the kernel lists the routes of all tables.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return err
	}
	for _, p := range q.want.Policies {
		q.routed, q.routes = p, 0
		if err := q.list(routesRequest(p)); err != nil {
			return err
		}
		if q.routes == 0 {
			return errUnclear
		}
	}
	return nil
}

// list asks for a list and reads all of it. The kernel has begun to answer when it is asked.
func (q *quickLook) list(request []byte) error {
	if _, err := unix.Write(q.fd, request); err != nil {
		return err
	}
	for {
		n, err := q.receive()
		if err != nil {
			return err
		}
		if n == len(q.buf) {
			return errUnclear // it was longer, perhaps
		}
		if done, err := q.read(q.buf[:n]); done || err != nil {
			return err
		}
	}
}

// receive fills the buffer with the next datagram. It fails for one that is not the kernel's: a process of the pod that may change its
// network can send such, and so say that all is there.
func (q *quickLook) receive() (int, error) {
	n, from, err := unix.Recvfrom(q.fd, q.buf[:], 0)
	if err != nil {
		return 0, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return 0, errForeign
	}
	return n, nil
}

// read reads the messages of an answer, and reports whether it has come to the end of the list.
func (q *quickLook) read(data []byte) (done bool, err error) {
	for len(data) > 0 {
		var header unix.NlMsghdr
		if len(data) < unix.NLMSG_HDRLEN {
			return false, errUnclear
		}
		header.Len, header.Type, header.Flags = native.Uint32(data), native.Uint16(data[4:]), native.Uint16(data[6:])
		if header.Len < unix.NLMSG_HDRLEN || int(header.Len) > len(data) || header.Flags&unix.NLM_F_DUMP_INTR != 0 {
			return false, errUnclear
		}
		if done, err := q.message(header.Type, data[unix.NLMSG_HDRLEN:header.Len]); done || err != nil {
			return done, err
		}
		data = data[min((int(header.Len)+3)&^3, len(data)):]
	}
	return false, nil
}

func (q *quickLook) message(kind uint16, body []byte) (done bool, err error) {
	switch kind {
	case unix.RTM_NEWADDR:
		q.answered, q.passthrough = true, true
	case unix.NLMSG_ERROR:
		if q.answered {
			return false, errUnclear
		}
		q.answered = true
		switch err := refusal(body); {
		case q.adding && err == nil:
			q.added, q.passthrough = true, true
		case q.adding && errors.Is(err, unix.EEXIST):
			q.passthrough = true
		case q.adding || !errors.Is(err, unix.EADDRNOTAVAIL):
			return false, errUnclear
		}
	case unix.RTM_NEWRULE:
		return false, q.rule(body)
	case unix.RTM_NEWROUTE:
		return false, q.route(body)
	case unix.NLMSG_DONE:
		if len(body) >= 4 && native.Uint32(body) != 0 {
			return false, errUnclear
		}
		return true, nil
	}
	return false, nil
}

// rule fails for a policy rule of our priority that is not one of those wanted. Whether it is ours is not for a quick look to tell.
func (q *quickLook) rule(body []byte) error {
	if len(body) < unix.SizeofRtMsg {
		return errUnclear
	}
	// As of a plain rule that looks up a table. The kernel leaves out what is 0.
	p, others := rules.PolicyRoute{Family: FamilyOf(int(body[0]))}, body[1] != 0 || body[2] != 0 || body[3] != 0 ||
		body[7] != nl.FR_ACT_TO_TBL || native.Uint32(body[8:]) != 0
	mask := uint32(0)
	err := eachAttribute(body[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch n := number(value); kind {
		case nl.FRA_PRIORITY:
			p.Priority = int(n)
		case nl.FRA_FWMARK:
			p.Mark = n
		case nl.FRA_FWMASK:
			mask = n
		case nl.FRA_TABLE:
			p.Table = n
		case nl.FRA_PROTOCOL: // who added it
		case nl.FRA_SUPPRESS_PREFIXLEN:
			others = others || n != ^uint32(0)
		default:
			others = true
		}
	})
	if err != nil || p.Priority != rules.PolicyPriority {
		return err
	}
	i := slices.Index(q.want.Policies, p)
	if i < 0 || others || mask != ^uint32(0) {
		return errUnclear
	}
	q.found[i] = true
	return nil
}

// route counts a route that is the wanted one.
func (q *quickLook) route(body []byte) error {
	if len(body) < unix.SizeofRtMsg {
		return errUnclear
	}
	var table, device, metric uint32
	err := eachAttribute(body[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_TABLE:
			table = number(value)
		case unix.RTA_OIF:
			device = number(value)
		case unix.RTA_PRIORITY:
			metric = number(value)
		}
	})
	want := localRoute{q.routed.Family, q.routed.Table}.kernel()
	if FamilyOf(int(body[0])) == q.routed.Family && body[1] == 0 && body[2] == 0 && body[3] == 0 && int(body[7]) == want.Type &&
		table == q.routed.Table && device == loopback && int(metric) == want.Priority {
		q.routes++
	}
	return err
}
