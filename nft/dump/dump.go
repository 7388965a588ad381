// Package dump repeats netlink dumps that a concurrent change has interrupted.
package dump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Attempts is an appropriate number of attempts for Retry. Because a dump takes microseconds, ten
// interruptions mean continuous changes.
const Attempts = 10

// Retry repeats a netlink dump until no change interrupts it, at most the given number of times. It
// returns the result of the last call: after an interrupted one, the error is
// [netlink.ErrDumpInterrupted], and the list may lack objects that have changed.
func Retry[T any](attempts int, dump func() (T, error)) (found T, err error) {
	for range attempts {
		if found, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}
