package netns

import (
	"fmt"
	"reflect"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// Netlink opens a netlink socket in the namespace for each of the protocols, such as
// [golang.org/x/sys/unix.NETLINK_ROUTE]. The caller must close the handle. The kernel refuses
// datagrams that other processes send to the sockets: package netlink would fail on them.
func (n *NS) Netlink(protocols ...int) (h *netlink.Handle, err error) {
	// netlink.NewHandleAt would save a thread switch (16 µs), but it uses the current namespace if
	// n is closed, and needs privileges even if n is the current namespace.
	err = n.Do(func() error {
		if h, err = netlink.NewHandle(protocols...); err != nil {
			return err
		}
		if err = connect(h); err != nil {
			h.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return h, nil
}

// connect connects the sockets of the handle to the kernel. Package netlink neither connects the
// sockets nor exports their descriptors.
func connect(h *netlink.Handle) error {
	for s := reflect.ValueOf(h).Elem().FieldByName("sockets").MapRange(); s.Next(); {
		socket := s.Value().Elem().FieldByName("Socket").Elem()
		if err := nlmsg.Connect(int(socket.FieldByName("fd").Int())); err != nil {
			return err
		}
	}
	return nil
}
