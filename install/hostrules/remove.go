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
		_, err := remove(g.options.Lock, false)
		return err
	})
}

// Remove removes the rules from all backends without a guard. It reports whether it has removed
// rules from at least one backend, even with an error. If nftOnly is set, a missing permission to
// read iptables-legacy is no error.
func (n *Node) Remove(nftOnly bool) (removed bool, err error) {
	err = n.Do(func() (err error) {
		removed, err = remove(n.Lock, nftOnly)
		return err
	})
	return removed, err
}

// remove removes the rules in the network namespace of the thread from all backends. It holds the
// lock of the iptables programs while it removes rules from iptables-legacy. If it cannot take the
// lock, or cannot read a backend, for example without CAP_NET_RAW, it removes the rules from the
// other backend and returns the error. If nftOnly is set, a missing permission to read iptables-legacy is no error.
func remove(
	lock func() (unlock func(), err error), nftOnly bool,
) (removed bool, err error) {
	installed, err := compat.InstalledBackends(nil)
	if nftOnly && compat.IsNotPermitted(err) {
		installed, err = compat.BackendsWithRules(nil, compat.BackendNFT)
	}
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
