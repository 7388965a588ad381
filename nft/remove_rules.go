package nft

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// RemoveRules deletes our table and leaves the routes, for a caller whose rules elsewhere need
// these. It reports whether there was a table. Unlike [Remove] it waits neither for appliers nor
// for the kernel to give the memory back.
func RemoveRules(ns *netns.NS) (bool, error) {
	removed := false
	err := inside(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer func() { go c.close() }()
		ours, err := c.findOurs()
		if ours == nil || err != nil {
			return err
		}
		if err := c.deleteTables(ours.Table); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		removed = true
		return nil
	})
	return removed, err
}
