package xtables

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/xt"
)

// Replace atomically replaces the kernel's table with t, which was returned by [Read] or [Open] and
// then edited. Each packet traverses either the old rules or the new ones. Rules that remain keep
// their counters: Replace adds the old values immediately after the replacement, which sets all
// counters to 0. The kernel resets the internal state of some matches (-m limit, quota, statistic),
// as with any change by iptables-legacy.
//
// The error wraps [ErrChanged] if another process has changed the table since it was read. Replace
// reads the table again and compares all entries. During the replacement, the kernel compares only
// the number of entries. A change between this read and the replacement that keeps the number, such
// as a changed policy, is therefore overwritten. Replace does not use iptables' lock file.
//
// The error wraps [ErrTooLarge] if t, or the table that it replaces, exceeds the limit of a
// [Reader].
//
// On success, t contains the table as read after the replacement. After a [ReplacedError], the
// table was replaced, but t is unchanged. After any other error, nothing has changed.
//
// Replace needs the privileges of [Read]. The kernel rejects a table with an owner match from a
// process outside the user namespace that owns the network namespace. For such a table, Replace
// clones the process, and the clone enters the user namespace, which needs CAP_SYS_ADMIN there.
func Replace(ns *netns.NS, t *Table) error {
	b, oldPositions, err := t.encode()
	if err != nil {
		return err
	}
	return withTable(ns, "replace", ID{t.Family, t.Name}, func(c *conn) error {
		if costOf(b.offsets, len(b.entries)) > c.maxCost {
			return ErrTooLarge
		}
		found, err := c.readBlob()
		if err != nil {
			return err
		}
		if !c.equal(found, t.origin) {
			return ErrChanged
		}
		counters, err := c.replace(b, found.count, t.mustEnterUserNamespace())
		if err != nil {
			return err
		}
		if err := c.addCounters(oldPositions, counters); err != nil {
			return &ReplacedError{fmt.Errorf("its counters are lost: %w", err)}
		}
		fresh, err := c.read()
		if err == nil && !c.equal(fresh.origin, b) {
			err = ErrChanged
		}
		if err != nil {
			return &ReplacedError{fmt.Errorf("the check after the replacement failed: %w", err)}
		}
		*t = *fresh
		return nil
	})
}

// A ReplacedError is an error that occurred after the table was replaced.
type ReplacedError struct{ Err error }

// Error describes the failure after the replacement.
func (e *ReplacedError) Error() string {
	return "the table was replaced, but " + e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *ReplacedError) Unwrap() error { return e.Err }

// replace writes the table and returns the counters of the old table, which must have oldCount
// entries. If inUserNamespace is set, a process in the owning user namespace writes the table; see
// replaceInUserNamespace.
func (c *conn) replace(b *blob, oldCount uint32, inUserNamespace bool) ([]byte, error) {
	counters, err := sharedMemory(countersSize * int(oldCount))
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Munmap(counters) }()
	buf := c.newBuffer(replaceSize + len(b.entries))
	fields := []uint32{b.validHooks, b.count, uint32(len(b.entries))}
	fields = slices.Concat(fields, b.hookEntry[:], b.underflow[:], []uint32{oldCount})
	for i, value := range fields {
		byteOrder.PutUint32(buf[nameSize+4*i:], value)
	}
	byteOrder.PutUint64(buf[countersPointer:], uint64(uintptr(unsafe.Pointer(&counters[0]))))
	copy(buf[replaceSize:], b.entries)
	if inUserNamespace {
		err = c.replaceInUserNamespace(buf)
	} else {
		err = c.set(optionReplace, buf)
	}
	if errors.Is(err, unix.EAGAIN) {
		err = ErrChanged
	}
	return slices.Clone(counters), err
}

// addCounters adds the counters of the old table to the new table. For each entry of the new table,
// oldPositions contains the position of its counter in the old table; see positionedEntry.
func (c *conn) addCounters(oldPositions []int, counters []byte) error {
	buf := c.newBuffer(addCountersSize + countersSize*len(oldPositions))
	byteOrder.PutUint32(buf[nameSize:], uint32(len(oldPositions)))
	for i, old := range oldPositions {
		if old > 0 {
			copy(buf[addCountersSize+countersSize*i:],
				counters[countersSize*(old-1):countersSize*old])
		}
	}
	return c.set(optionAddCounters, buf)
}

// mustEnterUserNamespace reports whether a process in another user namespace must write the table:
// the kernel accepts a table with an owner match only from a process in the user namespace that
// owns the network namespace of the thread.
func (t *Table) mustEnterUserNamespace() bool { return t.hasMatch("owner") && !ownsNetworkNamespace() }

// hasMatch reports whether any rule has the match.
func (t *Table) hasMatch(match string) bool {
	return slices.ContainsFunc(t.Chains, func(c Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool {
			return slices.ContainsFunc(r.Matches(), func(x xt.Extension) bool {
				return x.Name == match
			})
		})
	})
}

// ownsNetworkNamespace reports whether the thread's user namespace owns its network namespace. It
// returns true if the owner is unknown.
func ownsNetworkNamespace() bool {
	owner, err := openOwningUserNamespace()
	if err != nil {
		// The ioctl fails with EPERM if the owner is not a descendant of this user namespace.
		return !errors.Is(err, unix.EPERM)
	}
	defer func() { _ = unix.Close(owner) }()
	var owningStat, threadStat unix.Stat_t
	if unix.Fstat(owner, &owningStat) != nil || unix.Stat("/proc/thread-self/ns/user", &threadStat) != nil {
		return true
	}
	return owningStat.Dev == threadStat.Dev && owningStat.Ino == threadStat.Ino
}
