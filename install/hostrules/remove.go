package hostrules

import (
	"errors"
	"slices"

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
// lock of the iptables programs if there are rules in iptables-legacy. If it cannot read a backend,
// for example without CAP_NET_RAW, it removes the rules from the other one and returns the error.
func remove(lock func() (unlock func(), err error)) (removed bool, err error) {
	installed, err := compat.InstalledBackends(nil)
	if len(installed) == 0 {
		return false, err
	}
	if slices.ContainsFunc(installed, isLegacy) {
		unlock, lockErr := lock()
		if lockErr != nil {
			return false, errors.Join(err, lockErr)
		}
		defer unlock()
	}
	for _, b := range installed {
		removedFrom, removeErr := b.Remove(nil)
		removed, err = removed || removedFrom, errors.Join(err, removeErr)
	}
	return removed, err
}
