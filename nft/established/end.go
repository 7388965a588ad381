package established

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// Options configure [End].
type Options struct {
	// ProcDir is the node's /proc, from which End reads the groups of sockets and, if another user
	// namespace owns the network namespace, the maps of user and group ids. Ids that End cannot
	// read are unknown. If ProcDir is empty, End reads neither.
	ProcDir string
	// CountOnly makes End only count the connections that bypass the proxy.
	CountOnly bool
	// Time is the time after which End examines no further connections. 0 means DefaultTime.
	Time time.Duration
}

// DefaultTime is sufficient for about 25,000 connections with different addresses.
const DefaultTime = 2 * time.Second

// A Report counts connections.
type Report struct {
	// Ended is the number of ended connections. Broken is the number of ended connections for which
	// End only deleted the conntrack entry: TCP connections whose socket could not be destroyed,
	// which break with their next packet, and UDP connections, whose next datagram is captured.
	// Such TCP connections do not break if the sysctl nf_conntrack_tcp_loose is 0: they count as
	// Failed.
	Ended, Broken int
	// Kept is the number of connections that bypass the proxy and were kept because of
	// [Options.CountOnly].
	Kept int
	// Failed is the number of connections that bypass the proxy and could not be ended.
	Failed int
	// Undecided is the number of connections that were kept because it is unknown whether they
	// bypass the proxy.
	Undecided int
	// Unexamined is empty unless a limit was reached. It contains the number of examined
	// connections and the limit. It is unknown whether the remaining connections bypass the proxy.
	Unexamined string
	// Example is a connection that bypasses the proxy, and UndecidedExample an undecided
	// connection. Each is empty if there is no such connection.
	Example, UndecidedExample string
}

// End ends the connections of the namespace that bypass the proxy although the ruleset, which must
// be installed, captures such connections. It needs CAP_NET_ADMIN in the user namespace that owns
// the network namespace, and CAP_SYS_PTRACE to read groups. The report is valid even if the error
// is not nil.
func End(ns *netns.NS, rs rules.Ruleset, o Options) (Report, error) {
	if o.Time == 0 {
		o.Time = DefaultTime
	}
	deadline := time.Now().Add(o.Time)
	e := ender{options: o}
	err := ns.Do(func() error {
		h, err := (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		e.evaluator = evaluator{
			socketTable: newSocketTable(), handle: h, ruleset: &rs,
			ids:      newOwnerIDs(ns, o.ProcDir, deadline),
			deadline: deadline,
			// The cache keys and the senders to evaluate depend on the matches of the ruleset.
			usesSourcePorts: matchesSourcePorts(&rs),
			uids:            representativeIDs(&rs, false),
			gids:            representativeIDs(&rs, true),
			markValues:      representativeMarks(&rs),
			outcomes:        map[query]rules.Outcome{}, devices: map[netip.Addr]string{},
		}
		return e.run()
	})
	if err != nil {
		err = fmt.Errorf("%s: end connections that bypass the proxy: %w", ns, err)
	}
	return e.report, err
}

// An ender ends connections in the namespace of the thread.
type ender struct {
	evaluator
	options  Options
	report   Report
	examined int   // number of examined connections
	err      error // the first error of ending a connection
}

// run examines the connections: the conntrack entries, and the TCP sockets without an entry. If
// there are too many sockets, it does not examine TCP connections.
func (e *ender) run() error {
	if err := e.readAddresses(); err != nil {
		return err
	}
	var limits []string
	err := e.readSockets(e.deadline)
	switch {
	case err == nil:
		if len(e.gids) > 1 { // otherwise no rule depends on groups
			for _, s := range e.sockets {
				e.ids.addWanted(&s.Properties)
			}
		}
		if err = e.endTracked(false); err == nil {
			err = e.endUntracked()
		}
	case errors.Is(err, errTooMany):
		limits = append(limits,
			fmt.Sprintf("the namespace has more than %d TCP sockets", maxSockets))
		e.removeSockets()
		err = e.endTracked(true)
	}
	if errors.Is(err, errTime) {
		limits = append(limits, fmt.Sprintf("the time limit of %s has passed", e.options.Time))
		err = nil
	}
	if len(limits) > 0 {
		e.report.Unexamined = fmt.Sprintf("examined connections: %d; %s",
			e.examined, strings.Join(limits, ", "))
	}
	return errors.Join(e.err, err)
}

// endTracked examines the connections with a conntrack entry. onlyUDP excludes TCP connections.
func (e *ender) endTracked(onlyUDP bool) error {
	for c, err := range conntrack.List() {
		switch {
		case err != nil:
			return err
		case time.Now().After(e.deadline):
			return errTime
		case onlyUDP && c.Protocol != rules.UDP:
			continue
		}
		e.addEntry(&c)
		e.endIfBypassing(tuple{c.Protocol, pairOf(c.Original)}, c.Reply.Source, &c)
	}
	return nil
}

// endUntracked examines the TCP sockets without a conntrack entry.
func (e *ender) endUntracked() error {
	for key, s := range e.sockets {
		if time.Now().After(e.deadline) {
			return errTime
		}
		addrs := pair{key[0].addrPort(), key[1].addrPort()}
		switch {
		case s.hasEntry:
		case !e.ports[addrs.from.Port()]: // the namespace opened the connection
			// If the namespace has a socket whose peer is this socket, the connection leads to that
			// socket.
			e.endIfBypassing(tuple{rules.TCP, addrs}, e.peerOf(addrs.from), nil)
		case e.socket(tuple{rules.TCP, addrs.reverse()}) == nil:
			// The peer is in another namespace. For a peer in this namespace, the loop processes
			// the connection with the peer's socket.
			e.endIfBypassing(tuple{rules.TCP, addrs.reverse()}, netip.AddrPort{}, nil)
		}
	}
	return nil
}

// addUndestroyed counts a connection that transfers data and has no destroyed socket. deleted
// reports whether the kernel has deleted its conntrack entry.
func (e *ender) addUndestroyed(protocol rules.Protocol, deleted bool) {
	// Without tcp_loose, the packets of a TCP connection without an entry are invalid, and no rule
	// redirects them (tcp_new in net/netfilter/nf_conntrack_proto_tcp.c).
	if !deleted || protocol == rules.TCP && isStrict() {
		e.report.Failed++
		return
	}
	e.report.Ended++
	e.report.Broken++
}

// isStrict reports whether conntrack is configured to ignore TCP connections whose beginning it has
// not seen, in the namespace of the thread.
func isStrict() bool {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// endIfBypassing ends a connection if it bypasses the proxy. It counts bypassing and undecided
// connections in the report, except those that no longer transfer data. first is the tuple of the
// first packet. target is the address to which the connection leads; it is invalid if
// unknown. c is the conntrack entry, or nil.
func (e *ender) endIfBypassing(first tuple, target netip.AddrPort, c *conntrack.Entry) {
	e.examined++
	isAlive := e.socket(first) != nil || e.socket(first.reverse()) != nil ||
		first.protocol == rules.UDP
	switch e.decide(first, target, c) {
	case undecided:
		if isAlive {
			e.report.Undecided++
			setExample(&e.report.UndecidedExample, first)
		}
		return
	case keep:
		return
	case bypass:
	}
	if isAlive {
		setExample(&e.report.Example, first)
	}
	if e.options.CountOnly {
		if isAlive {
			e.report.Kept++
		}
		return
	}
	// The entry is deleted last: it translates the addresses of the reset.
	isDestroyed := e.destroy(first)
	isDeleted := c != nil && e.succeeded(c.Delete())
	switch {
	case !isAlive:
	case isDestroyed:
		e.report.Ended++
	case c != nil:
		e.addUndestroyed(first.protocol, isDeleted)
	default:
		e.report.Failed++
	}
}

// setExample sets the example to the connection, unless it is already set.
func setExample(example *string, first tuple) {
	if *example == "" {
		*example = first.String()
	}
}

// destroy destroys the sockets of a connection, and reports whether one was destroyed or has been
// closed in the meantime.
func (e *ender) destroy(first tuple) bool {
	destroyed := false
	for _, at := range []tuple{first, first.reverse()} {
		s := e.socket(at)
		if s == nil {
			continue
		}
		err := sockdiag.Destroy(sockdiag.Socket{
			Local: at.from, Peer: at.to, Properties: s.Properties,
		})
		switch {
		case errors.Is(err, unix.ENOENT):
			destroyed = true
		case errors.Is(err, unix.EOPNOTSUPP): // a kernel without CONFIG_INET_DIAG_DESTROY
		case e.succeeded(err):
			destroyed = true
		}
	}
	return destroyed
}

// succeeded reports whether err is nil. It records the first error.
func (e *ender) succeeded(err error) bool {
	if e.err == nil {
		e.err = err
	}
	return err == nil
}
