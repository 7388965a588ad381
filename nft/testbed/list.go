package testbed

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// List repeats a listing of netlink's until nothing has changed during it. An address changes also when nobody does anything: some
// milliseconds after it was added the kernel knows that no neighbour has it.
func List[T any](list func() ([]T, error)) ([]T, error) {
	for {
		found, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
}
