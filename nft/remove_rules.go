package nft

import "github.com/sluice-mesh/sluice/nft/netns"

// RemoveRules deletes the Sluice table and keeps the routes, for a caller whose rules in another
// backend need the routes. It reports whether the table existed. Unlike [Remove], it does not wait
// for the lock of the namespace, or for the kernel to free the deleted objects.
func RemoveRules(ns *netns.NS) (bool, error) {
	return removeTable(ns, (*conn).deleteSluiceTable)
}

// RemoveUnowned deletes an inet table with its content, unless the table belongs to the socket of a
// process (NFT_TABLE_F_OWNER), and reports whether it deleted the table. Like [RemoveRules], it
// waits neither for the lock nor for the kernel to free the deleted objects.
func RemoveUnowned(ns *netns.NS, table string) (bool, error) {
	return removeTable(ns, func(c *conn) (bool, error) {
		found, err := c.findTable(table)
		if err != nil || found == nil || found.Owned {
			return false, err
		}
		return c.deleteFound(found)
	})
}

// removeTable calls remove with a connection to the namespace.
func removeTable(ns *netns.NS, remove func(*conn) (bool, error)) (removed bool, err error) {
	err = ns.DoNamed(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer func() { go c.close() }()
		removed, err = remove(c)
		return err
	})
	return removed, err
}
