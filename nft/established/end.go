package established

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Options adjust [End].
type Options struct {
	// ProcDir is the node's /proc, for the groups of sockets. If it is empty, groups are not known.
	ProcDir string
	// Keep only counts the connections that bypass the proxy.
	Keep bool
	// Time bounds the decisions about all connections; 0 stands for DefaultTime.
	Time time.Duration
}

// DefaultTime is enough for some 50,000 connections.
const DefaultTime = 2 * time.Second

// A Report counts connections.
type Report struct {
	// Ended counts the connections that were ended. Broken of them had no socket to destroy: they
	// end with their next packet.
	Ended, Broken int
	// Kept bypass the proxy and stay, since Options say so.
	Kept int
	// Failed bypass the proxy and could not be ended.
	Failed int
	// Undecided stay since it is not known whether they bypass the proxy.
	Undecided int
	// Example is one of those that bypass the proxy, and UndecidedExample one of the undecided;
	// empty for none.
	Example, UndecidedExample string
}

// End ends the connections of the namespace that bypass the proxy although the ruleset, which is in
// place, captures such connections. It needs CAP_NET_ADMIN in the user namespace that owns the
// network namespace, and CAP_SYS_PTRACE for groups. Where the error is not nil, the report has what
// was done nevertheless.
func End(ns *netns.NS, rs rules.Ruleset, o Options) (Report, error) {
	e := ender{options: o, delete: map[key]bool{}}
	err := ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER, unix.NETLINK_INET_DIAG)
		if err != nil {
			return fmt.Errorf("open netlink sockets: %w", err)
		}
		defer h.Close()
		t, err := read(h)
		if err != nil {
			return err
		}
		if o.Time == 0 {
			o.Time = DefaultTime
		}
		e.judge = judge{
			table: t, h: h, ruleset: &rs, groups: &groups{procDir: o.ProcDir, ns: ns.ID()}, deadline: time.Now().Add(o.Time),
			sourcePorts: asksForSourcePorts(&rs), users: idsOf(&rs, false), gids: idsOf(&rs, true),
			fates: map[question]rules.Fate{}, devices: map[netip.Addr]string{},
		}
		return e.run()
	})
	if err != nil {
		err = fmt.Errorf("%s: end connections that bypass the proxy: %w", ns, err)
	}
	return e.report, err
}

// An ender ends connections, in the namespace of the thread.
type ender struct {
	judge
	options Options
	report  Report
	// delete are the entries of conntrack to delete.
	delete map[key]bool
	err    error // the first error that kept a socket from being destroyed
}

func (e *ender) run() error {
	tracked := map[pair]bool{}
	for _, c := range e.entries {
		if c.original.protocol == rules.TCP {
			tracked[c.original.pair], tracked[c.reply] = true, true
			tracked[c.original.reversed()], tracked[c.reply.reversed()] = true, true
		}
		e.take(c.original, c.reply.from, &c)
	}
	for ends, s := range e.sockets {
		switch accepted := len(e.listeners[s.ID.SourcePort]) > 0; {
		case tracked[ends]:
		case !accepted:
			e.take(tuple{rules.TCP, ends}, e.peers[ends.from], nil)
		case e.sockets[ends.reversed()] == nil: // else the other end, which is of this namespace, decides
			e.take(tuple{rules.TCP, ends.reversed()}, netip.AddrPort{}, nil)
		}
	}
	return errors.Join(e.err, e.deleteEntries())
}

// take decides about a connection, and ends it if it bypasses the proxy. The target is where it
// leads, not valid if that is not known. The entry is nil if conntrack does not know it.
func (e *ender) take(first tuple, target netip.AddrPort, c *entry) {
	ends := []*netlink.Socket{e.sockets[first.pair], e.sockets[first.reversed()]}
	alive := ends[0] != nil || ends[1] != nil || first.protocol == rules.UDP
	switch e.judge.judge(first, target) {
	case undecided:
		if alive {
			e.report.Undecided++
			e.report.UndecidedExample = first.String()
		}
		return
	case stays:
		return
	case bypasses:
	}
	if alive {
		e.report.Example = first.String()
	}
	if e.options.Keep {
		if alive {
			e.report.Kept++
		}
		return
	}
	if c != nil {
		e.delete[key{first, c.zone}] = true
	}
	if alive {
		e.count(e.destroy(ends), c != nil || first.protocol == rules.UDP)
	}
}

// count counts a connection of which sockets were destroyed, or not, and which breaks nevertheless
// if it has an entry.
func (e *ender) count(destroyed, breaks bool) {
	switch {
	case destroyed:
		e.report.Ended++
	case breaks:
		e.report.Ended++
		e.report.Broken++
	default:
		e.report.Failed++
	}
}

// destroy destroys sockets, and reports whether one was, or all have gone by themselves.
func (e *ender) destroy(sockets []*netlink.Socket) bool {
	destroyed := false
	for _, s := range sockets {
		if s == nil {
			continue
		}
		switch err := destroy(s); {
		case err == nil, errors.Is(err, unix.ENOENT):
			destroyed = true
		case errors.Is(err, unix.EOPNOTSUPP): // without CONFIG_INET_DIAG_DESTROY
		case e.err == nil:
			e.err = fmt.Errorf("destroy a socket: %w", err)
		}
	}
	return destroyed
}

// deleteEntries deletes the entries of conntrack.
func (e *ender) deleteEntries() error {
	if len(e.delete) == 0 {
		return nil
	}
	var err error
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, deleteErr := e.h.ConntrackDeleteFilters(netlink.ConntrackTable, family, e)
		if !errors.Is(deleteErr, netlink.ErrDumpInterrupted) {
			err = errors.Join(err, deleteErr)
		}
	}
	return err
}

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (e *ender) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	c := entryOf(f)
	return e.delete[key{c.original, c.zone}]
}

// destroy asks the kernel to destroy a socket of TCP. [netlink.SocketDestroy] does that for IPv4
// only.
func destroy(s *netlink.Socket) error {
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddRawData(diagRequest(s))
	_, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}

// diagRequest is a struct inet_diag_req_v2 of linux/inet_diag.h that names the socket.
func diagRequest(s *netlink.Socket) []byte {
	b := make([]byte, 0, 56)
	b = append(b, s.Family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
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
