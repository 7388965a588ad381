package testbed

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// List repeats a listing of netlink's until nothing has changed during it. An address changes also
// when nobody does anything: some milliseconds after it was added the kernel knows that no
// neighbour has it. The error is netlink's if it changes a hundred times.
func List[T any](list func() ([]T, error)) (found []T, err error) {
	for range 100 {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return found, err
}
