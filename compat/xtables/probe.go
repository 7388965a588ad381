package xtables

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Feature is a table, match or target that the kernel may lack.
type Feature struct {
	Family rules.Family
	Kind   Kind
	Name   string // "nat", "owner", "TPROXY"
	// Revision is the revision of a match or target.
	Revision uint8
}

// Kind is the kind of a feature.
type Kind uint8

// The kinds of features.
const (
	KindTable Kind = iota
	KindMatch
	KindTarget
)

// String names the feature: "match owner of ip, revision 1".
func (f Feature) String() string {
	switch f.Kind {
	case KindMatch:
		return fmt.Sprintf("match %s of %s, revision %d", f.Name, f.Family, f.Revision)
	case KindTarget:
		return fmt.Sprintf("target %s of %s, revision %d", f.Name, f.Family, f.Revision)
	}
	return ID{f.Family, f.Name}.String()
}

// Probe tests whether the kernel supports the feature. The kernel may load modules. If the kernel
// lacks the feature, Probe returns the kernel's error: ENOPROTOOPT without iptables-legacy,
// EAFNOSUPPORT without the family, and ENOENT or EPROTONOSUPPORT without the table, match or
// target.
//
// Probing a table creates it if it does not exist: use a temporary namespace. It needs the
// privileges of [Read].
func Probe(ns *netns.NS, f Feature) error {
	l, err := layoutOf(f.Family)
	if err != nil {
		return err
	}
	return ns.Do(func() error {
		fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer func() { _ = unix.Close(fd) }()
		c := &conn{l, f.Name, fd}
		if f.Kind == KindTable {
			_, _, err := c.info()
			return err
		}
		// struct xt_get_revision: the name, as in struct xt_entry_match, and the revision.
		b := make([]byte, extensionNameSize+1)
		copy(b[:len(b)-2], f.Name)
		b[len(b)-1] = f.Revision
		return c.get(l.revision+int(f.Kind-KindMatch), b)
	})
}
