package xtables

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Feature is something that tables need of the kernel.
type Feature struct {
	Family rules.Family
	Kind   Kind
	Name   string // "nat", "owner", "TPROXY"
	// Revision is that of a match or target.
	Revision uint8
}

// Kind says what a feature is.
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

// Probe asks the kernel for the feature; modules are loaded on demand. It returns the kernel's answer if that has not got it: ENOPROTOOPT
// where it has nothing of iptables-legacy, EAFNOSUPPORT without the family, ENOENT and EPROTONOSUPPORT for what it lacks of it.
//
// A table that does not exist comes into being: ask in a namespace of your own. It needs what [Read] needs.
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
		// struct xt_get_revision: the name as in struct xt_entry_match, and the revision.
		b := make([]byte, extensionRevision-extensionName+1)
		copy(b[:len(b)-2], f.Name)
		b[len(b)-1] = f.Revision
		return c.get(l.revision+int(f.Kind-KindMatch), b)
	})
}
