package nft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// This file handles the indexes of network interfaces. Rules with an index are equal only in one
// namespace, because each namespace has its own indexes. Only lo has the same index everywhere.

// indexData returns a text that identifies the namespace if an expression loads the index of an
// interface. Otherwise it returns an empty text.
func (d *ruleDecoder) indexData(name string, a attributes) string {
	if d.indexScope == (netns.ID{}) || !loadsIndex(name, a) {
		return ""
	}
	return fmt.Sprintf("index in %v", d.indexScope)
}

// loadsIndex reports whether an expression loads the index of an interface.
func loadsIndex(name string, a attributes) bool {
	switch name {
	case "meta":
		key := a.Number(unix.NFTA_META_KEY)
		return a.Get(unix.NFTA_META_DREG) != nil &&
			(key == unix.NFT_META_IIF || key == unix.NFT_META_OIF)
	case "fib":
		return a.Number(unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_OIF &&
			a.Number(unix.NFTA_FIB_FLAGS)&unix.NFTA_FIB_F_PRESENT == 0
	}
	return false
}

// comparesKnownIndex reports whether an expression compares an index with 0, which is no interface,
// or with the index of lo.
func comparesKnownIndex(name string, a attributes) bool {
	index, ok := nlmsg.HostNumber(constantValue(a, unix.NFTA_CMP_DATA))
	return name == "cmp" && ok && (index == 0 || index == netns.LoopbackIndex)
}

// isIndex reports whether the operand is the index of an interface.
func (o *operand) isIndex() bool {
	return o.mask == nil && (o.field == fieldInIndex || o.field == fieldOutIndex ||
		o.field == fieldReversePathIndex)
}
