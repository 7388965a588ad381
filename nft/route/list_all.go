package route

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/dump"
)

// dumpAttempts is the maximum number of attempts to dump a list without a concurrent change.
// Because a dump takes microseconds, ten interruptions mean continuous changes.
const dumpAttempts = 10

// listAll returns the result of the first dump that is not interrupted. objects names the listed
// objects in errors.
func listAll[T any](objects string, read func() (T, error)) (T, error) {
	var none T
	found, err := dump.Retry(dumpAttempts, read)
	switch {
	case errors.Is(err, netlink.ErrDumpInterrupted):
		return none, fmt.Errorf("list %s: %d attempts: %w", objects, dumpAttempts, err)
	case err != nil:
		return none, fmt.Errorf("list %s: %w", objects, err)
	}
	return found, nil
}
