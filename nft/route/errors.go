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

// ErrNoIPv6 is in the error of [Ensure] when IPv6 is wanted in a namespace where
// a sysctl disables it, or on a kernel without it. The text says which.
var ErrNoIPv6 = errors.New("the namespace has no IPv6")

// disableIPv6 is the sysctl that decides for lo; setting it for "all" sets it
// for each interface.
const disableIPv6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"

// explain adds to the kernel's refusal of o what it means.
func explain(ns *netns.NS, o object, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; CAP_NET_ADMIN is needed in the user namespace that owns the network namespace", err)
	}
	if o.family() != rules.IPv6 {
		return err
	}
	switch {
	// A security module refuses with EACCES as well, so the sysctl has the say.
	case errors.Is(err, unix.EACCES) && isOne(ns, disableIPv6):
		return fmt.Errorf("%w: sysctl net.ipv6.conf.lo.disable_ipv6 is 1: %w", ErrNoIPv6, err)
	// Without IPv6 nobody answers messages of its family (rtnetlink_rcv_msg in
	// net/core/rtnetlink.c, fib_newrule in net/core/fib_rules.c).
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the kernel is without it: %w", ErrNoIPv6, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("lo is down: %w", err)
	}
	return err
}

// isOne reports whether a sysctl of the namespace can be read and is 1.
func isOne(ns *netns.NS, path string) bool {
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile(path)
		return err
	})
	return err == nil && strings.TrimSpace(string(text)) == "1"
}
