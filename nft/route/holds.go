package route

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
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
	// routed is the policy route whose table is being listed, and routes how often its route is
	// there.
	routed rules.PolicyRoute
	routes int
	buf    *[quickSize]byte
}

// quickSize is more than the kernel puts into a message of which it does not know the reader
// (NLMSG_GOODSIZE).
const quickSize = 8 << 10

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
	interrupted, err := nlmsg.Exchange(q.fd, q.buf[:], request, q.message)
	if err == nil && interrupted {
		return errUnclear
	}
	return err
}

func (q *quickLook) message(m nlmsg.Message) error {
	switch m.Type {
	case unix.RTM_NEWADDR:
		q.answered, q.passthrough = true, true
	case unix.NLMSG_ERROR:
		answer, err := m.Answer()
		if q.answered || err != nil {
			return errUnclear
		}
		q.answered = true
		switch {
		case q.adding && answer.Errno == 0:
			q.added, q.passthrough = true, true
		case q.adding && answer.Errno == unix.EEXIST:
			q.passthrough = true
		case q.adding || answer.Errno != unix.EADDRNOTAVAIL:
			return errUnclear
		}
	case unix.RTM_NEWRULE:
		return q.rule(m.Body)
	case unix.RTM_NEWROUTE:
		return q.route(m.Body)
	}
	return nil
}

// rule fails for a policy rule of our priority that is not one of those wanted. Whether it is ours
// is not for a quick look to tell.
func (q *quickLook) rule(body []byte) error {
	if len(body) < unix.SizeofRtMsg {
		return errUnclear
	}
	// As of a plain rule that looks up a table. The kernel leaves out what is 0.
	p, others := rules.PolicyRoute{Family: FamilyOf(int(body[0]))}, body[1] != 0 || body[2] != 0 || body[3] != 0 ||
		body[7] != nl.FR_ACT_TO_TBL || native.Uint32(body[8:]) != 0
	mask := uint32(0)
	wellFormed := nlmsg.Attributes(body[unix.SizeofRtMsg:]).Each(func(kind uint16, value []byte) {
		switch n, _ := nlmsg.HostNumber(value); kind {
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
	if !wellFormed {
		return errUnclear
	}
	if p.Priority != rules.PolicyPriority {
		return nil
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
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	table, _ := a.HostNumber(unix.RTA_TABLE)
	device, _ := a.HostNumber(unix.RTA_OIF)
	metric, _ := a.HostNumber(unix.RTA_PRIORITY)
	want := localRoute{q.routed.Family, q.routed.Table}.kernel()
	if FamilyOf(int(body[0])) == q.routed.Family && body[1] == 0 && body[2] == 0 && body[3] == 0 && int(body[7]) == want.Type &&
		table == q.routed.Table && device == loopback && int(metric) == want.Priority {
		q.routes++
	}
	return nil
}
