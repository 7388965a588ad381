package route

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// InSync is a fast check of the calling thread's namespace. If it returns true, the namespace has
// all objects of want and no other objects of this package: [Ensure] would add nothing and [Prune]
// would remove nothing. If it returns false, the result is inconclusive. InSync takes a fraction of
// the time of Ensure. Since Linux 6.10 it does not take the kernel's RTNL lock, which other
// processes may hold.
func InSync(want rules.Routing) bool {
	if slices.ContainsFunc(want.LoopbackAddrs, func(a netip.Addr) bool {
		return a != rules.PassthroughIPv6()
	}) {
		return false
	}
	q, err := newFastCheck(want)
	if err != nil {
		return false
	}
	defer q.close()
	return q.query() == nil && q.checkComplete() == nil
}

// errInconclusive is the error of a fast check that cannot confirm the routing.
var errInconclusive = errors.New("the fast check is inconclusive")

// A fastCheck compares the routing of the socket's namespace with the wanted routing. ensureFast
// also uses it to add ::6.
type fastCheck struct {
	fd   int
	want rules.Routing
	// hasRule reports for each wanted policy route whether its rule exists.
	hasRule         []bool
	isAnswered      bool // the request about ::6 was answered
	hasPassthrough  bool // ::6 exists
	addsPassthrough bool // the request adds ::6 instead of querying it
	added           bool // the request has added ::6
	// currentPolicy is the policy route whose table is being listed, and hasRoute reports whether
	// the table contains its route.
	currentPolicy rules.PolicyRoute
	hasRoute      bool
	buf           *[bufferSize]byte
}

// bufferSize is larger than the datagrams of a dump (NLMSG_GOODSIZE).
const bufferSize = 8 << 10

// buffers reuses buffers: an audit of a node makes many fast checks in sequence.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// newFastCheck returns a fastCheck with a socket, which the caller must close.
func newFastCheck(want rules.Routing) (*fastCheck, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := nlmsg.Connect(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &fastCheck{
		fd: fd, want: want, hasRule: make([]bool, len(want.Policies)),
		buf: buffers.Get().(*[bufferSize]byte),
	}, nil
}

// close closes the socket and releases the buffer.
func (q *fastCheck) close() {
	_ = unix.Close(q.fd)
	buffers.Put(q.buf)
}

// query determines whether ::6 exists, and reads the policy rules. It returns an error if a policy
// rule with [rules.PolicyPriority] is not wanted, or if the answer is inconclusive.
func (q *fastCheck) query() error { return q.send(queryRequest()) }

// addPassthrough is like query, but adds ::6 if it is missing.
func (q *fastCheck) addPassthrough() error {
	q.addsPassthrough = true
	return q.send(addRequest())
}

// send sends a request about ::6 and the policy rules, and checks the answers.
func (q *fastCheck) send(request []byte) error {
	err := q.exchange(request)
	if err == nil && !q.isAnswered {
		return errInconclusive
	}
	return err
}

// checkComplete returns an error, after a query, if a wanted object is missing, or if ::6 exists
// and is not wanted.
func (q *fastCheck) checkComplete() error {
	if q.hasPassthrough != (len(q.want.LoopbackAddrs) > 0) || slices.Contains(q.hasRule, false) {
		return errInconclusive
	}
	if len(q.want.Policies) == 0 {
		return nil
	}
	// Without strict checking the kernel ignores the table and lists the routes of all tables.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK,
		1); err != nil {
		return err
	}
	for _, p := range q.want.Policies {
		q.currentPolicy, q.hasRoute = p, false
		if err := q.exchange(routesRequest(p)); err != nil {
			return err
		}
		if !q.hasRoute {
			return errInconclusive
		}
	}
	return nil
}

// exchange sends requests, and calls checkMessage for each message of the answers. The last request
// must be for a dump. The socket is non-blocking: the first part of an answer is available as soon
// as the request was sent, and each read makes the kernel produce the next part.
func (q *fastCheck) exchange(request []byte) error {
	interrupted, err := nlmsg.Exchange(q.fd, q.buf[:], request, q.checkMessage)
	if err == nil && interrupted {
		return errInconclusive
	}
	return err
}

// checkMessage records whether ::6, the wanted policy rules and the route of the current policy
// exist. It returns errInconclusive for a message that contradicts the wanted routing or is
// malformed, and ignores messages about other objects.
func (q *fastCheck) checkMessage(m nlmsg.Message) error {
	switch m.Type {
	case unix.RTM_NEWADDR:
		q.isAnswered, q.hasPassthrough = true, true
	case unix.NLMSG_ERROR:
		status, err := m.Status()
		if q.isAnswered || err != nil {
			return errInconclusive
		}
		q.isAnswered = true
		switch {
		case q.addsPassthrough && status.Errno == 0:
			q.added, q.hasPassthrough = true, true
		case q.addsPassthrough && status.Errno == unix.EEXIST:
			q.hasPassthrough = true
		case q.addsPassthrough || status.Errno != unix.EADDRNOTAVAIL:
			return errInconclusive
		}
	case unix.RTM_NEWRULE:
		return q.checkRule(m.Body)
	case unix.RTM_NEWROUTE:
		return q.checkRoute(m.Body)
	}
	return nil
}

// checkRule records a wanted policy rule. It returns an error for an unwanted rule with
// [rules.PolicyPriority], regardless of its owner, and for a malformed rule.
func (q *fastCheck) checkRule(body []byte) error {
	if len(body) < unix.SizeofRtMsg {
		return errInconclusive
	}
	p := rules.PolicyRoute{Family: FamilyOf(int(body[0]))}
	// hasOtherFields reports whether the rule has a selector or an action that policy routes do not
	// have. The kernel omits attributes that are 0. The body begins with a struct fib_rule_hdr:
	// family, dst_len, src_len, tos, table, res1, res2, action, and flags in 32 bits.
	hasOtherFields := body[1] != 0 || body[2] != 0 || body[3] != 0 ||
		body[7] != nl.FR_ACT_TO_TBL || native.Uint32(body[8:]) != 0
	wellFormed := nlmsg.Attributes(body[unix.SizeofRtMsg:]).Each(func(kind uint16, value []byte) {
		switch n, _ := nlmsg.HostNumber(value); kind {
		case nl.FRA_PRIORITY:
			p.Priority = int(n)
		case nl.FRA_FWMARK:
			p.Mark = n
		case nl.FRA_FWMASK:
			if n != ^uint32(0) {
				p.Mask = n
			}
		case nl.FRA_TABLE:
			p.Table = n
		case nl.FRA_PROTOCOL: // the origin of the rule does not matter
		case nl.FRA_SUPPRESS_PREFIXLEN:
			hasOtherFields = hasOtherFields || n != ^uint32(0)
		default:
			hasOtherFields = true
		}
	})
	if !wellFormed {
		return errInconclusive
	}
	if p.Priority != rules.PolicyPriority {
		return nil
	}
	i := slices.Index(q.want.Policies, p)
	if i < 0 || hasOtherFields {
		return errInconclusive
	}
	q.hasRule[i] = true
	return nil
}

// checkRoute records a route that is equal to the route of the current policy. The body begins with
// a struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope and type.
func (q *fastCheck) checkRoute(body []byte) error {
	if len(body) < unix.SizeofRtMsg {
		return errInconclusive
	}
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	table, _ := a.HostNumber(unix.RTA_TABLE)
	device, _ := a.HostNumber(unix.RTA_OIF)
	metric, _ := a.HostNumber(unix.RTA_PRIORITY)
	want := localRoute{q.currentPolicy.Family, q.currentPolicy.Table}.kernel()
	if FamilyOf(int(body[0])) == q.currentPolicy.Family &&
		body[1] == 0 && body[2] == 0 && body[3] == 0 && int(body[7]) == want.Type &&
		table == q.currentPolicy.Table && device == netns.LoopbackIndex &&
		int(metric) == want.Priority {
		q.hasRoute = true
	}
	return nil
}
