package xtables

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io/fs"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Digest is a hash of all iptables-legacy tables of a namespace: their chains, rules and
// policies, but not their counters. It serves to detect changes, because the kernel has no
// generation ID for these tables.
type Digest [sha256.Size]byte

// DigestTables returns the digest of the tables of the namespace (nil: the current one). It creates
// no table, and needs the privileges of [Tables] and [Read]. If there are no tables, it only reads
// two files. If the tables exceed the limit of a [Reader], the error wraps [ErrTooLarge].
func DigestTables(ns *netns.NS) (Digest, error) {
	var d Digest
	err := ns.Do(func() error {
		ids, err := Tables(nil)
		if err != nil {
			return err
		}
		h := sha256.New()
		var r Reader
		for _, id := range ids {
			// A table that another process removed after Tables listed it has no content.
			if err := r.digest(h, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		h.Sum(d[:0])
		return nil
	})
	return d, err
}

// digest writes a table to the hash, in the namespace of the thread.
func (r *Reader) digest(h hash.Hash, id ID) error {
	return withTable(nil, "read", id, func(c *conn) error {
		b, err := r.readExisting(c)
		if err != nil {
			return err
		}
		c.clearKernelFields(b.entries)
		_, _ = h.Write([]byte(id.String() + "\x00")) // never fails
		_, _ = h.Write(b.entries)
		for i := range hookCount {
			offsets := byteOrder.AppendUint32(nil, b.hookEntry[i])
			_, _ = h.Write(byteOrder.AppendUint32(offsets, b.underflow[i]))
		}
		return nil
	})
}
