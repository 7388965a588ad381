package route

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

func TestDumpStartsOverWhenInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name        string
		interrupted int // times, before the error
		err         error
		want        []int
		is          error
		calls       int
	}{
		{"never interrupted", 0, nil, []int{1, 2}, nil, 1},
		{"interrupted twice", 2, nil, []int{1, 2}, nil, 3},
		{"always interrupted", 1000, nil, nil, netlink.ErrDumpInterrupted, dumpAttempts},
		{"interrupted, then refused", 1, unix.EPERM, nil, unix.EPERM, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			got, err := dump("numbers", func() ([]int, error) {
				if calls++; calls <= tc.interrupted {
					return []int{1}, netlink.ErrDumpInterrupted
				}
				return []int{1, 2}, tc.err
			})
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.is) || calls != tc.calls {
				t.Errorf("got %v, %v after %d calls, want %v, %v after %d", got, err, calls, tc.want, tc.is, tc.calls)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		family rules.Family
		err    error
		noIPv6 bool
	}{
		{"a kernel without IPv6 does not know its policy rules", rules.IPv6, unix.EAFNOSUPPORT, true},
		{"a kernel without IPv6 does not know its addresses and routes", rules.IPv6, unix.EOPNOTSUPP, true},
		{"a kernel without policy rules is something else", rules.IPv4, unix.EAFNOSUPPORT, false},
		{"a security module refuses where IPv6 is enabled", rules.IPv6, unix.EACCES, false},
		{"too few capabilities", rules.IPv6, unix.EPERM, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := explain(nil, localRoute{tc.family, 133}, tc.err)
			if !errors.Is(err, tc.err) || errors.Is(err, ErrNoIPv6) != tc.noIPv6 {
				t.Errorf("explained as %q, want ErrNoIPv6: %v", err, tc.noIPv6)
			}
		})
	}
}
