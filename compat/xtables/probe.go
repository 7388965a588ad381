package xtables

import (
	"fmt"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Feature is a table, match or target that the kernel may lack.
type Feature struct {
	Family rules.Family
	Kind   Kind
	Name   string // for example "nat", "owner" or "TPROXY"
	// Revision is the revision of a match or target.
	Revision uint32
}

// Kind is the kind of a feature.
type Kind uint8

// The kinds of features.
const (
	KindTable Kind = iota
	KindMatch
	KindTarget
)

// String returns a text such as "match owner of ip, revision 1".
func (f Feature) String() string {
	switch f.Kind {
	case KindMatch:
		return fmt.Sprintf("match %s of %s, revision %d", f.Name, f.Family, f.Revision)
	case KindTarget:
		return fmt.Sprintf("target %s of %s, revision %d", f.Name, f.Family, f.Revision)
	}
	return ID{f.Family, f.Name}.String()
}

// Probe tests whether the kernel supports the feature. This may make the kernel load modules. If
// the kernel lacks the feature, Probe returns the kernel's error: ENOPROTOOPT without
// iptables-legacy, EAFNOSUPPORT without the family, and ENOENT or EPROTONOSUPPORT without the
// table, match or target.
//
// For a table, Probe creates the table if it does not exist; pass a temporary namespace to avoid an
// effect on packets. Probe needs the privileges of [Read].
func Probe(ns *netns.NS, f Feature) error {
	l, err := layoutOf(f.Family)
	if err != nil {
		return err
	}
	return l.withConn(ns, f.Name, func(c *conn) error {
		if f.Kind == KindTable {
			_, _, err := c.info()
			return err
		}
		// struct xt_get_revision: the name, as in struct xt_entry_match, and the revision.
		b := make([]byte, extensionNameSize+1)
		copy(b[:len(b)-2], f.Name)
		b[len(b)-1] = uint8(f.Revision)
		return c.get(l.revisionOption+int(f.Kind-KindMatch), b)
	})
}
