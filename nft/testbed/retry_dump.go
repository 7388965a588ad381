package testbed

import "github.com/sluice-mesh/sluice/nft/dump"

// maxDumps is the maximum number of dumps of a list that changes during each dump.
const maxDumps = 100

// RetryDump repeats a netlink dump until no change interrupts the dump. A list can change without a
// request: some milliseconds after an address is added, duplicate address detection changes the
// flags of the address. After 100 interrupted dumps, RetryDump returns
// netlink.ErrDumpInterrupted.
func RetryDump[T any](list func() ([]T, error)) ([]T, error) { return dump.Retry(maxDumps, list) }
