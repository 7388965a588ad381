package route

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestDumpIsRepeatedWhenInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name        string
		interrupted int   // number of interrupted calls
		err         error // of the call after them
		want        []int
		wantErr     error
		calls       int
	}{
		{"never interrupted", 0, nil, []int{1, 2}, nil, 1},
		{"interrupted twice", 2, nil, []int{1, 2}, nil, 3},
		{"always interrupted", 1000, nil, nil, netlink.ErrDumpInterrupted, dumpAttempts},
		{"interrupted, then refused", 1, unix.EPERM, nil, unix.EPERM, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			got, err := listAll("numbers", func() ([]int, error) {
				if calls++; calls <= tc.interrupted {
					return []int{1}, netlink.ErrDumpInterrupted
				}
				return []int{1, 2}, tc.err
			})
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.wantErr) || calls != tc.calls {
				t.Errorf("got %v, error %v after %d calls, want %v, error %v after %d", got, err, calls,
					tc.want, tc.wantErr, tc.calls)
			}
		})
	}
}

// FuzzFastCheck checks that any answer can be decoded, and that no policy route is found in an
// answer without it.
func FuzzFastCheck(f *testing.F) {
	want := rules.PolicyRoute{
		Family: rules.IPv4, Mark: 1337, Table: 133, Priority: rules.PolicyPriority,
	}
	for _, answer := range []string{
		// The wanted policy rule, and the end of the dump.
		"3c0000002000020001000000000000000200000000000001000000000800060085000000080010003905000008000f0085000000",
		"14000000030002000100000000000000" + "00000000",
		// ::6 does not exist.
		"240000000200000001000000000000009dffffff2c00000016000100010000000000000000",
	} {
		data, err := hex.DecodeString(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := fastCheck{
			want: rules.Routing{Policies: []rules.PolicyRoute{want}}, hasRule: make([]bool, 1),
			currentPolicy: want,
		}
		_, _ = nlmsg.Each(data, func(m nlmsg.Message) (bool, error) { return false, q.checkMessage(m) })
		mark := native.AppendUint32(nil, want.Mark)
		if q.hasRule[0] && !bytes.Contains(data, mark) {
			t.Errorf("found a rule without its mark in %x", data)
		}
		if q.hasRoute && len(data) < unix.NLMSG_HDRLEN+unix.SizeofRtMsg {
			t.Errorf("found a route in %x, which is too short for a route", data)
		}
	})
}

// TestMessagesOfOtherProcessesAreRefused covers a process of the pod that sends messages to the
// socket of a fast check.
func TestMessagesOfOtherProcessesAreRefused(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		q, err := newFastCheck(rules.Routing{})
		if err != nil {
			return err
		}
		defer q.close()
		own, err := unix.Getsockname(q.fd)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = unix.Sendto(fd, make([]byte, unix.NLMSG_HDRLEN), 0, &unix.SockaddrNetlink{
			Family: unix.AF_NETLINK, Pid: own.(*unix.SockaddrNetlink).Pid,
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a message of another process: error %v, want %v", err, unix.ECONNREFUSED)
		}
		if q.query() != nil || q.checkComplete() != nil {
			t.Error("the fast check failed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestExplainError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		family rules.Family
		err    error
		noIPv6 bool
	}{
		{"policy rules on a kernel without IPv6", rules.IPv6, unix.EAFNOSUPPORT, true},
		{"addresses and routes on a kernel without IPv6", rules.IPv6, unix.EOPNOTSUPP, true},
		{"a kernel without policy rules", rules.IPv4, unix.EAFNOSUPPORT, false},
		{"a refusal by a security module, with IPv6 enabled", rules.IPv6, unix.EACCES, false},
		{"a missing capability", rules.IPv6, unix.EPERM, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := explainError(nil, localRoute{tc.family, 133}, tc.err)
			if !errors.Is(err, tc.err) || errors.Is(err, ErrNoIPv6) != tc.noIPv6 {
				t.Errorf("error %q, want %q, with ErrNoIPv6: %t", err, tc.err, tc.noIPv6)
			}
		})
	}
}

// TestFormatRouteContainsTheNumberOfAnUnknownType covers types of routes that later kernels may add.
func TestFormatRouteContainsTheNumberOfAnUnknownType(t *testing.T) {
	got := FormatRoute(netlink.Route{
		Family: netlink.FAMILY_V4, Table: 133, Type: 200, LinkIndex: netns.LoopbackIndex,
	}, deviceName)
	if want := "ip -4 route 200 default dev lo table 133"; got != want {
		t.Errorf("route text %q, want %q", got, want)
	}
}
