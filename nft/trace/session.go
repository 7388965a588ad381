package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// Table is the name of the inet table of a session.
const Table = "sluice_trace"

// DefaultRate is the default number of traced packets per second of each rule. A thousand packets
// cause about 20,000 messages.
const DefaultRate = 1000

// receiveBuffer is the size of the receive buffer in bytes. The kernel doubles it, and a message
// takes about 1 KiB.
const receiveBuffer = 8 << 20

// Options configure a session.
type Options struct {
	Filter Filter
	// Rate is the maximum number of packets per second that each rule of the session traces. 0
	// means DefaultRate.
	Rate uint32
}

// A Session traces packets of one network namespace until it is closed.
type Session struct {
	table  *nftables.Conn
	owned  bool
	events socket.Socket
	buffer []byte
	drops  uint32
	closed sync.Once
	err    error
}

// ErrBusy is the error of [Open] if the namespace has another session.
var ErrBusy = errors.New("another trace runs in this network namespace")

// Open starts to trace in the namespace. nil is the current namespace. Open needs CAP_NET_ADMIN in
// the user namespace that owns the network namespace.
func Open(ns *netns.NS, o Options) (*Session, error) {
	s := &Session{buffer: make([]byte, 64<<10)}
	if err := ns.Do(func() error { return s.open(o) }); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), s.Close())
	}
	return s, nil
}

func (s *Session) open(o Options) error {
	// Listen before adding the table, so that no event is missed.
	if err := s.listen(); err != nil {
		return err
	}
	var err error
	if s.table, err = nftables.New(nftables.AsLasting()); err != nil {
		return err
	}
	if err := remove(s.table); err != nil {
		return err
	}
	s.owned = true
	err = s.add(o, nftables.TableFlagOwner)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		s.owned = false // a kernel before 5.12
		err = s.add(o, 0)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) && s.exists() {
		return ErrBusy
	}
	return err
}

// exists reports whether the namespace has the table of a session.
func (s *Session) exists() bool {
	_, err := s.table.ListTableOfFamily(Table, nftables.TableFamilyINet)
	return err == nil
}

// add adds the table in one transaction.
func (s *Session) add(o Options, flags nftables.TableFlags) error {
	rate := cmp.Or(o.Rate, DefaultRate)
	t := s.table.CreateTable(&nftables.Table{
		Family: nftables.TableFamilyINet, Name: Table, Flags: flags,
	})
	for _, h := range []struct {
		hook rules.Hook
		num  *nftables.ChainHook
	}{{rules.Prerouting, nftables.ChainHookPrerouting}, {rules.Output, nftables.ChainHookOutput}} {
		if !o.Filter.hasHook(h.hook) {
			continue
		}
		for _, c := range []struct {
			name     string
			priority nftables.ChainPriority
			first    []expr.Any
		}{
			{"segments-" + h.hook.String(), math.MinInt32, firstSegment()},
			{"packets-" + h.hook.String(), rules.ConntrackPriority + 1, firstPacket()},
		} {
			chain := s.table.AddChain(&nftables.Chain{
				Table: t, Name: c.name, Type: nftables.ChainTypeFilter, Hooknum: h.num,
				Priority: &c.priority,
			})
			s.table.AddRule(&nftables.Rule{
				Table: t, Chain: chain,
				Exprs: slices.Concat(c.first, o.Filter.expressions(h.hook), enableTrace(rate)),
			})
		}
	}
	return s.table.Flush()
}

// listen opens the socket for events, with a port id that the kernel chooses.
func (s *Session) listen() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.events = socket.FromFD(fd)
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		// Without CAP_NET_ADMIN in the initial user namespace: at most net.core.rmem_max.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	for _, group := range []int{unix.NFNLGRP_NFTRACE, unix.NFNLGRP_NFTABLES} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP,
			group); err != nil {
			return fmt.Errorf("join multicast group %d: %w", group, err)
		}
	}
	return nil
}

// A Batch contains received events.
type Batch struct {
	Events []Event
	// Changed reports that the ruleset of the namespace has changed.
	Changed bool
	// Lost is the number of messages that the kernel dropped because the buffer was full.
	Lost uint32
}

// SetDeadline makes [Session.Next] return [os.ErrDeadlineExceeded] at the given time. The zero
// value means no deadline.
func (s *Session) SetDeadline(t time.Time) error { return s.events.SetReadDeadline(t) }

// Next waits for messages and returns all queued ones. It must be called by one goroutine at a
// time. After [Session.Close] it returns [os.ErrClosed].
func (s *Session) Next() (Batch, error) {
	var b Batch
	err := s.events.WhenReadable(func(fd int) error {
		err := s.drain(fd, &b)
		if errors.Is(err, unix.EAGAIN) && (len(b.Events) > 0 || b.Changed || b.Lost > 0) {
			return nil
		}
		return err
	})
	return b, err
}

// maxEvents is the maximum number of events of a batch, except for those of the last datagram.
const maxEvents = 4096

// drain reads messages until the queue is empty, when it returns EAGAIN, or the batch is full.
func (s *Session) drain(fd int, b *Batch) error {
	for len(b.Events) < maxEvents {
		n, from, err := unix.Recvfrom(fd, s.buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			drops := dropped(fd)
			b.Lost += max(1, drops-s.drops)
			s.drops = drops
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			// Only from the kernel: processes may send to the groups too.
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
				b.add(s.buffer[:n])
			}
		}
	}
	return nil
}

// Types of messages (linux/netfilter/nf_tables.h).
const (
	newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	traceMessage  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE
)

// add decodes and adds the messages of a datagram.
func (b *Batch) add(data []byte) {
	for len(data) >= unix.NLMSG_HDRLEN {
		length := binary.NativeEndian.Uint32(data)
		if length < unix.NLMSG_HDRLEN || uint64(length) > uint64(len(data)) {
			return
		}
		switch binary.NativeEndian.Uint16(data[4:]) {
		case newGeneration:
			b.Changed = true
		case traceMessage:
			if e, err := Decode(data[unix.NLMSG_HDRLEN:length]); err == nil && e.Table != Table {
				b.Events = append(b.Events, e)
			}
		}
		data = data[min((int(length)+3)&^3, len(data)):]
	}
}

// dropped returns the number of messages that the kernel has dropped because the receive buffer was
// full, or 0 before Linux 4.12.
func dropped(fd int) uint32 {
	const drops = 8 // SK_MEMINFO_DROPS, linux/sock_diag.h
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return info[drops]
}

// Close ends the session and a waiting [Session.Next], and removes the table.
func (s *Session) Close() error {
	s.closed.Do(func() {
		if s.events.File != nil {
			s.err = s.events.Close()
		}
		if s.table != nil {
			if !s.owned {
				s.err = errors.Join(s.err, remove(s.table))
			}
			s.err = errors.Join(s.err, s.table.CloseLasting())
		}
	})
	return s.err
}

// Remove removes the table of a killed session, which remains on kernels without owner tables. It
// returns nil if there is no such table. On kernels with owner tables it keeps the table of a
// running session.
func Remove(ns *netns.NS) error {
	return ns.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		return remove(c)
	})
}

func remove(c *nftables.Conn) error {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == Table && t.Flags&nftables.TableFlagOwner == 0 {
			c.DelTable(t)
			if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove the table %s: %w", Table, err)
			}
		}
	}
	return nil
}
