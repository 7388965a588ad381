package nft

import "github.com/sluice-mesh/sluice/nft/netns"

// RemoveRules deletes the Sluice table and keeps the routes, for a caller whose rules in another
// backend need the routes. It reports whether the table existed. Unlike [Remove], it does not wait
// for the lock of the namespace, or for the kernel to free the deleted objects.
func RemoveRules(ns *netns.NS) (bool, error) {
	removed := false
	err := ns.DoNamed(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer func() { go c.close() }()
		removed, err = c.deleteSluiceTable()
		return err
	})
	return removed, err
}
