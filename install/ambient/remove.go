package ambient

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// RemoveRules removes the rules of ambient mode from the network namespaces of all processes of the
// node, except the node's own. It is for a node without an agent: it does not know the pods, and
// changes neither their annotations nor ztunnel. It returns the number of namespaces that had
// rules. The error says how many namespaces may still have rules.
func RemoveRules(procDir string) (removed int, err error) {
	paths, err := sandbox.Namespaces(procDir)
	var firstErr error
	failed := 0
	for _, path := range paths {
		had, removeErr := removeRulesAt(path)
		if had {
			removed++
		}
		if removeErr == nil {
			continue
		}
		if failed++; firstErr == nil {
			firstErr = fmt.Errorf("%s: %w", path, removeErr)
		}
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf(
			"rules of ambient mode may remain in %d network namespaces; the first error is: %w",
			failed, firstErr))
	}
	return removed, err
}

// removeRulesAt removes the rules of ambient mode from the network namespace at a path. It reports
// whether the namespace had rules, and now has none.
func removeRulesAt(path string) (removed bool, err error) {
	ns, err := netns.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil // the process has ended
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = ns.Close() }()
	has, err := hasRules(ns)
	if err != nil || !has {
		return false, err
	}
	if err := removeRules(ns); err != nil {
		return false, err
	}
	return true, nil
}
