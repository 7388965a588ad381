package ambient

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// RemoveRules removes the rules of ambient mode from the network namespaces of all processes of the
// node, except the node's own. It is for a node without an agent: it does not know the pods, and
// changes neither their annotations nor ztunnel. It returns the number of namespaces from which it
// removed rules. The error contains the number of namespaces that may still have rules.
func RemoveRules(procDir string) (removed int, err error) {
	namespaces, err := sandbox.Namespaces(procDir)
	var firstErr error
	failed := 0
	for _, ns := range namespaces {
		had, removeErr := removeRulesFrom(ns)
		_ = ns.Close()
		if had {
			removed++
		}
		if removeErr == nil {
			continue
		}
		if failed++; firstErr == nil {
			firstErr = removeErr
		}
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf(
			"rules of ambient mode may remain in %d network namespaces; the first error is: %w",
			failed, firstErr))
	}
	return removed, err
}

// removeRulesFrom removes the rules of ambient mode from a network namespace, and reports whether
// it has removed any.
func removeRulesFrom(ns *netns.NS) (removed bool, err error) {
	has, err := hasRules(ns)
	if err != nil || !has {
		return false, err
	}
	err = removeRules(ns)
	return err == nil, err
}
