package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Table is the name of the inet table of a session.
const Table = "sluice_trace"

// Chain is the name of the iptables-legacy chain that selects the packets to trace on kernels
// without nf_tables.
const Chain = Table

// DefaultRate is the default of [Options.Rate]. A thousand packets cause about 20,000 messages.
const DefaultRate = 1000

// Options configure a session.
type Options struct {
	Filter Filter
	// Rate is the maximum number of packets per second that each rule of the session traces. 0
	// means DefaultRate.
	Rate uint32
	// Buffer is the size of the receive buffer in bytes. 0 means a buffer for about 10,000
	// messages.
	Buffer int
}

// A Session traces packets of one network namespace until it is closed.
type Session struct {
	ns     *netns.NS
	table  *nftables.Conn
	events *Receiver
	unlock func() // nil if the kernel removes the table

	closeOnce sync.Once
	closeErr  error
}

// ErrBusy is the error of [Open] if the namespace already has a session, and of [Lock] and
// [LockSession] if the lock is held.
var ErrBusy = errors.New("another trace runs in this network namespace")

// Open starts a session in the namespace, or in the current namespace if ns is nil. It needs
// CAP_NET_ADMIN in the user namespace that owns the network namespace.
func Open(ns *netns.NS, o Options) (*Session, error) {
	s := &Session{ns: ns}
	if err := ns.Do(func() error { return s.open(o) }); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), s.Close())
	}
	return s, nil
}

// open opens the session in the namespace of the thread.
func (s *Session) open(o Options) error {
	// Listen before adding the table, so that no event is missed.
	if err := s.listen(o.Buffer); err != nil {
		return err
	}
	var err error
	s.table, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(connect))
	if err != nil {
		return err
	}
	if _, err := Remove(nil); err != nil {
		return err
	}
	err = s.addTable(o, nftables.TableFlagOwner)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// The kernel is older than 5.12, and has no tables with an owner.
		if s.unlock, err = LockSession(nil); err != nil {
			return err
		}
		if _, err = nft.RemoveUnowned(nil, Table); err == nil {
			err = s.addTable(o, 0)
		}
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) && s.exists() {
		return ErrBusy
	}
	return err
}

// connect connects a socket of package nftables to the kernel.
func connect(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = nlmsg.Connect(int(fd)) }), err)
}

// exists reports whether the namespace has the table of a session.
func (s *Session) exists() bool {
	_, err := s.table.ListTableOfFamily(Table, nftables.TableFamilyINet)
	return err == nil
}

// addTable adds the table with its chains and rules in one transaction.
func (s *Session) addTable(o Options, flags nftables.TableFlags) error {
	rate := cmp.Or(o.Rate, DefaultRate)
	t := s.table.CreateTable(&nftables.Table{
		Family: nftables.TableFamilyINet, Name: Table, Flags: flags,
	})
	for _, h := range []struct {
		hook rules.Hook
		num  *nftables.ChainHook
	}{{rules.Prerouting, nftables.ChainHookPrerouting}, {rules.Output, nftables.ChainHookOutput}} {
		if !o.Filter.HasHook(h.hook) {
			continue
		}
		for _, c := range []struct {
			name     string
			priority nftables.ChainPriority
			matches  []rules.Match
		}{
			{"segments-" + h.hook.String(), math.MinInt32, FirstSegment()},
			{"packets-" + h.hook.String(), rules.ConntrackPriority + 1, firstPacket()},
		} {
			expressions, err := o.Filter.expressions(h.hook, c.matches, rate)
			if err != nil {
				return err
			}
			chain := s.table.AddChain(&nftables.Chain{
				Table: t, Name: c.name, Type: nftables.ChainTypeFilter, Hooknum: h.num,
				Priority: &c.priority,
			})
			s.table.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: expressions})
		}
	}
	return s.table.Flush()
}

// listen opens the socket for events.
func (s *Session) listen(buffer int) (err error) {
	if s.events, err = NewReceiver(buffer); err != nil {
		return err
	}
	return s.events.Control(func(fd int) error {
		for _, group := range []int{unix.NFNLGRP_NFTRACE, unix.NFNLGRP_NFTABLES} {
			if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP,
				group); errors.Is(err, unix.EPERM) {
				return fmt.Errorf("join multicast group %d: %w (needs CAP_NET_ADMIN in the user namespace"+
					" that owns the network namespace)", group, err)
			} else if err != nil {
				return fmt.Errorf("join multicast group %d: %w", group, err)
			}
		}
		return nil
	})
}

// A Batch contains received events.
type Batch struct {
	// Events include the events of the session's own table.
	Events []Event
	// Changed reports whether a transaction has changed the ruleset of the namespace. The addition
	// of the session's own table counts too.
	Changed bool
	// Lost is the number of messages that the kernel dropped because the buffer was full. It is a
	// lower bound before Linux 4.12.
	Lost uint32
}

// SetDeadline makes [Session.Next] return [os.ErrDeadlineExceeded] at the given time. The zero
// value means no deadline.
func (s *Session) SetDeadline(t time.Time) error { return s.events.SetReadDeadline(t) }

// Next waits for messages and returns the queued events, at most about 4,096. The batch may be
// empty if other processes, whose messages are ignored, have sent many. Next must be called by one
// goroutine at a time. After [Session.Close] it returns [os.ErrClosed].
func (s *Session) Next() (Batch, error) {
	var b Batch
	err := s.events.WhenReadable(func(fd int) error {
		lost, err := s.events.Drain(fd, b.add)
		b.Lost += lost
		if errors.Is(err, unix.EAGAIN) && (len(b.Events) > 0 || b.Changed || b.Lost > 0) {
			return nil
		}
		return err
	})
	return b, err
}

// Types of messages (linux/netfilter/nf_tables.h).
const (
	newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	traceMessage  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE
)

// add decodes and adds the messages of a datagram. It ignores malformed messages.
func (b *Batch) add(data []byte) {
	_, _ = nlmsg.Each(data, func(m nlmsg.Message) (bool, error) {
		switch m.Type {
		case newGeneration:
			b.Changed = true
		case traceMessage:
			if e, err := Decode(m.Body); err == nil {
				b.Events = append(b.Events, e)
			}
		}
		return false, nil
	})
}

// Close ends the session and a waiting [Session.Next], and removes the table.
func (s *Session) Close() error {
	s.closeOnce.Do(func() {
		if s.events != nil {
			s.closeErr = s.events.Close()
		}
		if s.table != nil {
			if s.unlock != nil {
				_, err := nft.RemoveUnowned(s.ns, Table)
				s.closeErr = errors.Join(s.closeErr, err)
				s.unlock()
			}
			s.closeErr = errors.Join(s.closeErr, s.table.CloseLasting())
		}
	})
	return s.closeErr
}

// Remove removes the table that a killed session leaves on kernels without owner tables, and
// reports whether there was such a table. It keeps the table of a running session.
func Remove(ns *netns.NS) (removed bool, err error) {
	release, err := Lock(ns)
	switch {
	case errors.Is(err, ErrBusy):
		return false, nil
	case err != nil:
		return false, err
	}
	defer release()
	return nft.RemoveUnowned(ns, Table)
}

// lockName is the name of the lock ([netns.NS.LockName]).
const lockName = "@sluice.trace"

// Lock acquires the lock of the namespace. A session holds the lock if the kernel does not remove
// the session's rules at the end of the process. If the lock is held, Lock returns [ErrBusy]. No
// session that needs the lock can begin before release is called.
func Lock(ns *netns.NS) (release func(), err error) { return lock(ns, 0) }

// lockWait is the time limit of [LockSession]. A removal holds the lock for some milliseconds.
const lockWait = 2 * time.Second

// LockSession is like [Lock], but for a new session: it waits while another process, such as the
// node agent, removes the rules of a killed session.
func LockSession(ns *netns.NS) (release func(), err error) { return lock(ns, lockWait) }

// lock acquires the lock within the given time, or returns [ErrBusy].
func lock(ns *netns.NS, wait time.Duration) (release func(), err error) {
	release, acquired, err := ns.LockName(lockName, wait)
	if err == nil && !acquired {
		release()
		return nil, ErrBusy
	}
	return release, err
}
