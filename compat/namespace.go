package compat

import (
	"fmt"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// inside runs do in the namespace, in which all sockets that do opens then are. It adds the
// namespace to the error.
func inside(ns *netns.NS, do func() error) error {
	err := ns.Do(do)
	if err != nil && ns != nil {
		return fmt.Errorf("%s: %w", ns, err)
	}
	return err
}

// locked runs do in the namespace of the thread while other appliers, of either backend, wait. A
// process that does not release the lock only delays do, and a system that allows no lock does no
// harm: exclusive is false then.
func locked(do func(exclusive bool) error) error {
	const wait = 2 * time.Second
	release, taken, err := (*netns.NS)(nil).Lock(wait)
	if err != nil {
		return do(false)
	}
	defer release()
	return do(taken)
}
