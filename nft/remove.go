package nft

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Remove deletes the Sluice table and then its routes, and reports whether it deleted anything.
func Remove(ns *netns.NS) (bool, error) {
	return withSocket(ns, func(c *conn) (bool, error) {
		release, _ := lock(netns.LockTimeout)
		defer release()
		deleted, err := c.deleteSluiceTable()
		if err != nil {
			return false, err
		}
		removed, err := route.PruneAfter(deleted)
		return deleted || removed > 0, err
	})
}

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

// removeTable is like [withSocket], but closes the socket in the background.
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

// deleteSluiceTable deletes the Sluice table, and reports whether it existed.
func (c *conn) deleteSluiceTable() (bool, error) {
	table, err := c.findSluiceTable()
	if err != nil {
		return false, err
	}
	return c.deleteFound(table)
}

// deleteFound deletes a table that findTable has returned, and reports whether it existed.
func (c *conn) deleteFound(table *foundTable) (bool, error) {
	if table == nil {
		return false, nil
	}
	if err := c.deleteTables(table.Table); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	return true, nil
}

// deleteTables deletes tables with their content in one transaction.
func (c *conn) deleteTables(tables ...rules.Table) error {
	t, err := encode(rules.Ruleset{}, tables, anyGeneration)
	if err != nil {
		return err
	}
	return c.commit(t)
}
