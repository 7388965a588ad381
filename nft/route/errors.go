package route

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ErrNoIPv6 is wrapped by the error of [Ensure] for IPv6 objects if a sysctl of the namespace
// disables IPv6 or the kernel does not support it. The text of the error names the cause.
var ErrNoIPv6 = errors.New("the namespace has no IPv6")

// disableIPv6 is the sysctl that disables IPv6 on lo. Setting the sysctl of "all" sets the sysctl
// of each interface.
const disableIPv6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"

// explainError adds the cause to the kernel's error for the addition of o.
func explainError(ns *netns.NS, o object, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf(
			"%w; needs CAP_NET_ADMIN in the user namespace that owns the network namespace", err)
	}
	if o.family() != rules.IPv6 {
		return err
	}
	switch {
	// Check the sysctl: security modules return EACCES too.
	case errors.Is(err, unix.EACCES) && isOne(ns, disableIPv6):
		return fmt.Errorf("%w: sysctl net.ipv6.conf.lo.disable_ipv6 is 1: %w", ErrNoIPv6, err)
	// A kernel without IPv6 has no handler for messages of the family (rtnetlink_rcv_msg in
	// net/core/rtnetlink.c, fib_newrule in net/core/fib_rules.c).
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the kernel does not support it: %w", ErrNoIPv6, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("lo is down: %w", err)
	}
	return err
}

// isOne reports whether a sysctl of the namespace is readable and 1.
func isOne(ns *netns.NS, path string) bool {
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile(path)
		return err
	})
	return err == nil && strings.TrimSpace(string(text)) == "1"
}
