package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
)

// New creates a namespace without a name, whose loopback interface is down. The
// kernel destroys it after [NS.Close] unless a socket or a process still belongs
// to it. Without CAP_SYS_ADMIN the error wraps [unix.EPERM].
func New() (*NS, error) {
	var n *NS
	err := thread.Run(thread.Work{
		Enter: func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		// Not netns.New: it opens /proc/PID/task/TID, which belongs to another process if /proc
		// belongs to another PID namespace.
		Do: func() error {
			h, err := netns.GetFromPath(threadNS)
			if err != nil {
				return fmt.Errorf("open: %w", err)
			}
			n, err = newNS("new", h)
			return err
		},
	})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (needs CAP_SYS_ADMIN)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	n.name = n.id.String()
	return n, nil
}
