package hostrules

import (
	"errors"

	"github.com/sluice-mesh/sluice/compat"
)

// Uninstall removes the rules from all backends. Afterwards the guard writes no rules, even if
// [Guard.Set] or [Guard.Replace] returns nil.
func (g *Guard) Uninstall() error {
	g.rulesMu.Lock()
	defer g.rulesMu.Unlock()
	g.uninstalled = true
	return g.options.Do(func() error {
		_, err := remove(g.options.Lock)
		return err
	})
}

// Remove removes the rules from all backends without a guard. It reports whether it has removed
// rules from at least one backend, even with an error.
func (n *Node) Remove() (removed bool, err error) {
	err = n.Do(func() (err error) {
		removed, err = remove(n.Lock)
		return err
	})
	return removed, err
}

// remove removes the rules in the network namespace of the thread from all backends. It holds the
// lock of the iptables programs while it removes rules from iptables-legacy. If it cannot take the
// lock, or cannot read a backend, it removes the rules from the other backend and returns the
// error.
func remove(lock func() (unlock func(), err error)) (removed bool, err error) {
	installed, err := compat.InstalledBackends(nil)
	for _, b := range installed {
		removedFrom, removeErr := removeFrom(b, lock)
		removed, err = removed || removedFrom, errors.Join(err, removeErr)
	}
	return removed, err
}

// removeFrom removes the rules from one backend; see remove.
func removeFrom(b compat.Backend, lock func() (unlock func(), err error)) (removed bool, err error) {
	if isLegacy(b) {
		unlock, err := lock()
		if err != nil {
			return false, err
		}
		defer unlock()
	}
	return b.Remove(nil)
}
