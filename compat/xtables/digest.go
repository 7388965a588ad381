package xtables

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io/fs"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Digest is a hash of all iptables-legacy tables of a namespace: their chains, rules and
// policies, but not their counters. It detects changes, for which the kernel has no generation id.
type Digest [sha256.Size]byte

// DigestTables returns the digest of the tables of the namespace (nil: the current one). It creates
// no table, and needs the privileges of [Tables] and [Read]. If there are no tables, it only reads
// two files.
func DigestTables(ns *netns.NS) (Digest, error) {
	var d Digest
	err := ns.Do(func() error {
		ids, err := Tables(nil)
		if err != nil {
			return err
		}
		h := sha256.New()
		for _, id := range ids {
			// A table that another process removed after Tables listed it has no content.
			if err := digestTable(h, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		h.Sum(d[:0])
		return nil
	})
	return d, err
}

// digestTable writes a table to the hash, in the namespace of the thread.
func digestTable(h hash.Hash, id ID) error {
	return do(nil, "read", id, func(c *conn) error {
		if err := c.requireExisting(); err != nil {
			return err
		}
		b, err := c.readBlob()
		if err != nil {
			return err
		}
		if err := c.blank(b.entries); err != nil {
			return err
		}
		_, _ = h.Write([]byte(id.String() + "\x00")) // never fails
		_, _ = h.Write(b.entries)
		for i := range hooks {
			where := native.AppendUint32(nil, b.hookEntry[i])
			_, _ = h.Write(native.AppendUint32(where, b.underflow[i]))
		}
		return nil
	})
}

// blank clears the fields that the kernel changes: counters, and comefrom, in which it marks
// visited entries to detect loops.
func (l *layout) blank(entries []byte) error {
	const counters = 16 // struct xt_counters
	for len(entries) > 0 {
		if len(entries) < l.size {
			return errTruncated
		}
		next := int(native.Uint16(entries[l.next:]))
		if next < l.size || next > len(entries) {
			return errTruncated
		}
		clear(entries[l.comefrom : l.comefrom+4])
		clear(entries[l.counters : l.counters+counters])
		entries = entries[next:]
	}
	return nil
}

// errTruncated is the error for an entry that exceeds its table.
var errTruncated = errors.New("an entry exceeds the end of the table")
