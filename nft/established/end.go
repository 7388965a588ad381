package established

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/netns"
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
	// Time bounds the time of all decisions. 0 means DefaultTime.
	Time time.Duration
}

// DefaultTime is sufficient for about 50,000 connections.
const DefaultTime = 2 * time.Second

// A Report counts connections.
type Report struct {
	// Ended is the number of ended connections. Broken is the number of ended connections for which
	// End only deleted the conntrack entry: TCP connections whose socket could not be destroyed,
	// which break with their next packet, and UDP connections, whose next datagram is captured.
	// TCP connections do not break if the sysctl nf_conntrack_tcp_loose is 0, and count as Failed.
	Ended, Broken int
	// Kept is the number of connections that bypass the proxy and were kept because of
	// [Options.CountOnly].
	Kept int
	// Failed is the number of connections that bypass the proxy and could not be ended.
	Failed int
	// Undecided is the number of connections that were kept because it is unknown whether they
	// bypass the proxy.
	Undecided int
	// Example is a connection that bypasses the proxy, and UndecidedExample an undecided
	// connection. Each is empty if there is no such connection.
	Example, UndecidedExample string
}

// End ends the connections of the namespace that bypass the proxy although the ruleset, which must
// be installed, captures such connections. It needs CAP_NET_ADMIN in the user namespace that owns
// the network namespace, and CAP_SYS_PTRACE to read groups. The report is valid even if the error
// is not nil.
func End(ns *netns.NS, rs rules.Ruleset, o Options) (Report, error) {
	e := ender{options: o, toDelete: map[entryKey]bool{}}
	err := ns.Do(func() error {
		h, err := (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER,
			unix.NETLINK_INET_DIAG)
		if err != nil {
			return err
		}
		defer h.Close()
		t, err := readTable(h)
		if err != nil {
			return err
		}
		marks := representativeMarks(&rs)
		if len(marks) > 1 {
			if t.marks, err = readMarks(); err != nil {
				return err
			}
		}
		if o.Time == 0 {
			o.Time = DefaultTime
		}
		deadline := time.Now().Add(o.Time)
		e.evaluator = evaluator{
			connectionTable: t, handle: h, ruleset: &rs,
			ids:      newOwnerIDs(ns, o.ProcDir, deadline),
			deadline: deadline,
			// The cache keys and the senders to evaluate depend on the matches of the ruleset.
			sourcePorts: matchesSourcePorts(&rs),
			uids:        representativeIDs(&rs, false),
			gids:        representativeIDs(&rs, true),
			markValues:  marks,
			outcomes:    map[query]rules.Outcome{}, devices: map[netip.Addr]string{},
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
	toDelete map[entryKey]bool // conntrack entries
	// withoutSocket contains the protocols of the connections in toDelete that transfer data and
	// of which no socket was destroyed.
	withoutSocket []rules.Protocol
	err           error // the first error of destroying a socket
}

// run calls endIfBypassing for all connections: the conntrack entries, and the TCP sockets without
// an entry.
func (e *ender) run() error {
	tracked := map[pair]bool{}
	for _, c := range e.entries {
		if c.original.protocol == rules.TCP {
			tracked[c.original.pair], tracked[c.reply] = true, true
			tracked[c.original.reverse()], tracked[c.reply.reverse()] = true, true
		}
		e.endIfBypassing(c.original, c.reply.from, &c)
	}
	for addrs, s := range e.sockets {
		if tracked[addrs] {
			continue
		}
		isAccepted := len(e.listeners[s.ID.SourcePort]) > 0
		switch {
		case !isAccepted:
			// If the namespace has a socket whose peer is this socket, the connection leads to that
			// socket.
			e.endIfBypassing(tuple{rules.TCP, addrs}, e.peers[addrs.from], nil)
		case e.sockets[addrs.reverse()] == nil:
			// The peer is in another namespace. For a peer in this namespace, the loop processes
			// the connection with the peer's socket.
			e.endIfBypassing(tuple{rules.TCP, addrs.reverse()}, netip.AddrPort{}, nil)
		}
	}
	err := e.deleteEntries()
	e.addUndestroyed(err == nil)
	return errors.Join(e.err, err)
}

// addUndestroyed adds the connections withoutSocket to the report. deleted reports whether the
// kernel has deleted their conntrack entries.
func (e *ender) addUndestroyed(deleted bool) {
	strict := len(e.withoutSocket) > 0 && isStrict()
	for _, protocol := range e.withoutSocket {
		// Without tcp_loose, the packets of a TCP connection without an entry are invalid, and no
		// rule redirects them (tcp_new in net/netfilter/nf_conntrack_proto_tcp.c).
		if !deleted || protocol == rules.TCP && strict {
			e.report.Failed++
			continue
		}
		e.report.Ended++
		e.report.Broken++
	}
}

// isStrict reports whether conntrack is configured to ignore TCP connections whose beginning it has
// not seen, in the namespace of the thread.
func isStrict() bool {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// endIfBypassing ends a connection if it bypasses the proxy. It reports connections that bypass the
// proxy and undecided connections, except connections that no longer transfer data. first is the
// tuple of the first packet. target is the address to which the connection leads; it is invalid if
// unknown. c is the conntrack entry, or nil.
func (e *ender) endIfBypassing(first tuple, target netip.AddrPort, c *conntrackEntry) {
	sockets := []*netlink.Socket{e.sockets[first.pair], e.sockets[first.reverse()]}
	isAlive := sockets[0] != nil || sockets[1] != nil || first.protocol == rules.UDP
	switch e.decide(first, target, c) {
	case undecided:
		if isAlive {
			e.report.Undecided++
			e.report.UndecidedExample = first.String()
		}
		return
	case keep:
		return
	case bypass:
	}
	if isAlive {
		e.report.Example = first.String()
	}
	if e.options.CountOnly {
		if isAlive {
			e.report.Kept++
		}
		return
	}
	if c != nil {
		e.toDelete[entryKey{first, c.zone}] = true
	}
	if isAlive {
		switch {
		case e.destroy(sockets):
			e.report.Ended++
		case c != nil:
			e.withoutSocket = append(e.withoutSocket, first.protocol)
		default:
			e.report.Failed++
		}
	}
}

// destroy destroys sockets, and reports whether one was destroyed or has been closed in the
// meantime.
func (e *ender) destroy(sockets []*netlink.Socket) bool {
	destroyed := false
	for _, s := range sockets {
		if s == nil {
			continue
		}
		switch err := destroySocket(s); {
		case err == nil, errors.Is(err, unix.ENOENT):
			destroyed = true
		case errors.Is(err, unix.EOPNOTSUPP): // a kernel without CONFIG_INET_DIAG_DESTROY
		case e.err == nil:
			e.err = fmt.Errorf("destroy a socket: %w", err)
		}
	}
	return destroyed
}

// deleteEntries deletes the selected conntrack entries.
func (e *ender) deleteEntries() error {
	if len(e.toDelete) == 0 {
		return nil
	}
	var err error
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		err = errors.Join(err, e.deleteFamily(family))
	}
	return err
}

// deleteFamily deletes the selected conntrack entries of a family. After an interrupted dump, which
// may lack entries, it dumps again.
func (e *ender) deleteFamily(family netlink.InetFamily) error {
	_, err := dump.Retry(maxAttempts, func() ([]uint, error) {
		_, err := e.handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, e)
		return nil, err
	})
	return err
}

// MatchConntrackFlow implements [netlink.CustomConntrackFilter]. It selects the entries to delete.
func (e *ender) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	c := decodeEntry(f)
	return e.toDelete[entryKey{c.original, c.zone}]
}

// destroySocket destroys a TCP socket. [netlink.SocketDestroy] supports only IPv4.
func destroySocket(s *netlink.Socket) error {
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddRawData(diagRequest(s))
	_, err := executeDiag(request)
	return err
}

// diagRequest encodes a struct inet_diag_req_v2 of linux/inet_diag.h that identifies the socket.
func diagRequest(s *netlink.Socket) []byte {
	b := anyStateRequest(s.Family)
	b = binary.BigEndian.AppendUint16(b, s.ID.SourcePort)
	b = binary.BigEndian.AppendUint16(b, s.ID.DestinationPort)
	for _, ip := range []net.IP{s.ID.Source, s.ID.Destination} {
		if s.Family == unix.AF_INET {
			ip = ip.To4()
		}
		b = append(b, make([]byte, net.IPv6len)...)
		copy(b[len(b)-net.IPv6len:], ip)
	}
	b = binary.NativeEndian.AppendUint32(b, s.ID.Interface)
	b = binary.NativeEndian.AppendUint32(b, s.ID.Cookie[0])
	return binary.NativeEndian.AppendUint32(b, s.ID.Cookie[1])
}
