package netns

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Netlink opens a netlink socket in the namespace for each of the protocols, such as
// [golang.org/x/sys/unix.NETLINK_ROUTE]. The caller must close the handle.
func (n *NS) Netlink(protocols ...int) (h *netlink.Handle, err error) {
	// netlink.NewHandleAt would save a thread switch (16 µs), but it uses the current namespace if
	// n is closed, and needs privileges even if n is the current namespace.
	err = n.Do(func() error {
		h, err = netlink.NewHandle(protocols...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return h, nil
}
