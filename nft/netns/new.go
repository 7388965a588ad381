package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
)

// New creates a namespace that nobody else refers to: it has no name, a
// loopback interface that is down, and is gone after [NS.Close] unless
// something in it lives on (a socket, a process). [unix.EPERM] is in the error
// without CAP_SYS_ADMIN.
func New() (*NS, error) {
	var n *NS
	err := thread.Run(thread.Work{
		Enter: func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		// Not netns.New: it opens /proc/PID/task/TID, which is another process's where /proc is
		// that of another PID namespace.
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
